"""Where the health of a workload in each cluster is read, for moves that add first."""
