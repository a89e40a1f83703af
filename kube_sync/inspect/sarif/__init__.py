"""Findings of the commands that look, as SARIF 2.1.0 for code scanning."""
