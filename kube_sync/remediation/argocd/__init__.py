"""Serves Argo CD's ApplicationSet controller with the clusters of placements (plugin generator)."""
