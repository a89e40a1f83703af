"""The rules of SchedulingPolicy, asked of a real OPA as anybody would ask it."""
