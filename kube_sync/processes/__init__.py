"""Wires the processes; the only package that imports every other."""
