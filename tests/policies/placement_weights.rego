package policies.placement_weights

cpus(cluster) := to_number(cluster.status.allocatable.cpu)

weights[name] := weight if {
	some name, cluster in data.kubernetes.clusters.fleet
	weight := round(cpus(cluster) / 2)
	not cluster.spec.unschedulable
}

decision := {"total": sum([weight | some weight in weights]), "of": weights, "for": input.metadata.name}
