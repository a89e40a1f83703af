"""Sinks: what a decision is written to beside the annotations of its object."""
