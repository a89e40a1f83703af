"""`kube-sync test`: whether policies place what their authors say they place, decided by an OPA.

Above planning, whose scratch OPA and whose question it shares: a case is decided as the replicator
would decide it, and here is only what is expected, and how that differs.
"""
