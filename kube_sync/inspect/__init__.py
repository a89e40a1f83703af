"""Read-only commands that inspect policies, decisions and objects."""
