package policies.placement_spread

by_zone[zone] contains name if {
	some name, cluster in data.kubernetes.clusters.fleet
	zone := cluster.metadata.labels.zone
}

decision := {zone: count(names) | some zone, names in by_zone; input.spec.replicas > 1}
