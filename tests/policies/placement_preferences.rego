package policies.placement_preferences

requested := object.get(input, ["metadata", "annotations", "preferences"], "{}")

preferences := json.unmarshal(requested)

allowed contains name if {
	some name, cluster in data.kubernetes.clusters[_]
	cluster.metadata.labels.tier == "gold"
}

decision := object.union({"rebalance": true}, {"clusters": object.filter(preferences.clusters, allowed)})
