"""The page of every configuration key, made of the settings."""
