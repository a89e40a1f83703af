"""The wiring: the only package that knows every part."""
