"""Loads policies into OPA as one set that compiles, and reports the outcome on their objects."""
