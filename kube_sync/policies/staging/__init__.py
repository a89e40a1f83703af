"""Staged policies, evaluated beside those in force: shadows, canaries, candidates."""
