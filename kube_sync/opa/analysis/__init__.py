"""Static analysis of policies: which fields a decision can read, by their syntax trees."""
