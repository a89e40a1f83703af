"""`kube-sync plan`: predicts the effect of an edit of policies or clusters on every workload.

Layered above the replicator and the remediator: their own code computes the prediction from a
snapshot, without a server that serves.
"""
