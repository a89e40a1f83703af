"""`kube-sync analyze`: what a decision reads, and what replicating only that would save."""
