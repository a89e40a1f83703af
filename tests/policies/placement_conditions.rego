package policies.placement_conditions

ready(cluster) if {
	some condition in cluster.status.conditions
	condition.type == "Ready"
	condition.status == "True"
}

decision contains name if {
	some name, cluster in data.kubernetes.clusters[input.metadata.namespace]
	ready(cluster)
}
