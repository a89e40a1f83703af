"""Policies that decide beside what is in force: shadows, canaries, candidates."""
