"""Which fields a decision can read, found in the syntax trees of the policies."""
