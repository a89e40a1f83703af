"""Provisions the Secrets of an installation: creates missing ones, renews old ones."""
