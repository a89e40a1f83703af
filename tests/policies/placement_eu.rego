package policies.placement_eu

decision["clusters"] := {name: {"weight": 1} |
	some name, cluster in data.kubernetes.clusters[_]
	startswith(cluster.metadata.labels["topology.kubernetes.io/region"], "europe-")
	input.kind == "ReplicaSet"
}
