"""Staged candidates: planned with beside everything else, and told what they would do."""
