"""`make soak-classes`: answers of the webhook by class against OPA, while parts change and fail.

etcd, kube-apiserver, OPA, the replicator and two webhooks run as processes: one webhook compares
the answers of classes with OPA's, the other gives them. Both get reviews as fast as they answer.
Policies, clusters, objects and data change, and a fault comes every few seconds. The first webhook
counts the answers of classes that differ from OPA's; those of the second are compared with OPA's
from outside. `servers` runs them, `churn` changes things, `policies` says what is asked and what
decides, `faults` are those that touch decisions, `witness` asks, `judging` judges (pure), `report`
tells, `run` puts them together.
"""
