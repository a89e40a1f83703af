# Clusters that must be used.
#
# Resolves a conflict in the second style of the design proposal: the policy defines the clusters
# that MUST be used, here those in the EU, and what the developer requested is never read.
#
# The helper is a function, not a rule: a document's rules are all part of OPA's answer, and the
# answer is to hold `annotations` and `errors` only.
#
# A comment only: of a package, which the examples share, METADATA may be given but once.
package io.k8s.federation.admission

# METADATA
# description: Equal shares for every cluster that the policy defines
annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name in clusters},
	"rebalance": true,
} if {
	clusters := _policy_defined_clusters(input.kind)
	count(clusters) > 0
}

# METADATA
# description: Nothing is left to run on, which must not read as permission to run anywhere
errors contains "no cluster of the fleet may be used" if {
	count(_policy_defined_clusters(input.kind)) == 0
}

_policy_defined_clusters("ReplicaSet") := {name |
	some name, cluster in data.kubernetes.clusters[_]
	startswith(cluster.metadata.labels["topology.kubernetes.io/region"], "europe-")
}
