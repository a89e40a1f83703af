"""Finds what is installed in a cluster, as the caller of a command may see it."""
