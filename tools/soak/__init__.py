"""`make soak`: the whole installation under load, for as long as wanted, while parts of it fail.

etcd, kube-apiserver, OPA, replicator, remediator and webhook run as processes. Objects, clusters
and policies change all the time, a fault comes every minute, and what is promised is held against
what is there: OPA holds what the API server has, what the stream tells is what OPA says when asked
afresh, objects carry what was decided, nobody is refused without a cause, memory does not grow.
`scene` runs the servers, `load` changes things, `faults` breaks them, `checks` compares, `run` puts
them together, `report` tells; `wishes`, `windows`, `memory` and `comparing` are pure.
"""
