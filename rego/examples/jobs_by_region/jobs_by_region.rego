# Jobs by region and cost
#
# A Workload of Kueue may run in the clusters of the region that its label names, in any without one;
# of these the cheapest is tried first. Clusters say both in labels of their ClusterProfiles, which
# have the names of the MultiKueueClusters. (Not as METADATA: a package has it once, and a test loads
# all examples at once.)
package io.k8s.federation.admission

# METADATA
# description: Every cluster of the region; the weight makes the order, the cheapest first
annotations["federation.kubernetes.io/replica-set-preferences"] := {"clusters": clusters} if {
	input.kind == "Workload"
	clusters := {name: {"weight": 100 - cost} | some name, cost in _eligible(input)}
	count(clusters) > 0
}

# METADATA
# description: Whoever is urgent waits five seconds for a cluster, and not five minutes
annotations["kube-sync.io/next-cluster-seconds"] := "5" if {
	input.kind == "Workload"
	input.metadata.labels.team == "urgent"
}

# METADATA
# description: What each cluster costs
reasons[name] contains sprintf("costs %d", [cost]) if {
	input.kind == "Workload"
	some name, cost in _eligible(input)
}

# METADATA
# description: A region without a cluster
errors contains sprintf("no cluster is in the region %q", [input.metadata.labels.region]) if {
	input.kind == "Workload"
	count(_eligible(input)) == 0
}

_eligible(workload) := {name: cost |
	some name, cluster in data.kubernetes.clusters.fleet
	_in_region(workload, cluster)
	cost := to_number(cluster.metadata.labels["example.com/cost"])
}

_in_region(workload, _) if not workload.metadata.labels.region

_in_region(workload, cluster) if {
	cluster.metadata.labels["topology.kubernetes.io/region"] == workload.metadata.labels.region
}
