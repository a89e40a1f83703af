"""The Secrets of an installation: made where they are missing, renewed before they are too old."""
