"""Commands that look at policies, decisions and objects, and write nothing."""
