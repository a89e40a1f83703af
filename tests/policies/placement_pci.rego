package policies.placement_pci

default decision := {"clusters": []}

decision := {"clusters": names} if {
	level := to_number(input.metadata.annotations["policy/pci-level"])
	names := [cluster.metadata.name |
		some cluster in data.kubernetes.clusters.fleet
		to_number(cluster.metadata.annotations["pci-level"]) >= level
	]
	count(names) > 0
}
