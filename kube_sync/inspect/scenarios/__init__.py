"""`kube-sync test`: runs scenario tests of policies, evaluated by an OPA.

Layered above planning, whose offline OPA and query it shares: a case is decided as the replicator
decides it; this package has only the expectations, and their comparison with the outcome.
"""
