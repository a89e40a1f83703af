package policies.placement_selector

import data.lib.objects

selector := json.unmarshal(objects.annotation(input, "placement/selector"))

matches(cluster) if {
	every key, value in selector {
		cluster.metadata.labels[key] == value
	}
}

decision := [name | some name; matches(data.kubernetes.clusters.fleet[name])]
