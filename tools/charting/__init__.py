"""The Helm chart, made of what kustomize builds: `python -m tools.charting`."""
