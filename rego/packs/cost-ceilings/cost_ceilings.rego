# METADATA
# title: Cost ceilings
# description: Workloads run on clusters that cost no more than they, or their namespace, may cost
package placement.packs.cost_ceilings

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["cost-ceilings"]

# METADATA
# description: Clusters that cost more than each of the ceilings, or do not say what they cost
objections[name] contains sprintf("costs %v, more than %v", [cost, ceiling]) if {
	ceiling := min(_ceilings)
	some name, cluster in data.kubernetes.clusters[_]
	cost := _cost(cluster)
	cost > ceiling
}

objections[name] contains "does not say what it costs" if {
	count(_ceilings) > 0
	some name, cluster in data.kubernetes.clusters[_]
	not _cost(cluster)
}

# METADATA
# description: A ceiling that is no amount
problems contains sprintf("annotation policy.example.com/cost-ceiling: %q is no amount", [text]) if {
	text := input.metadata.annotations["policy.example.com/cost-ceiling"]
	not _amount(text)
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"ceiling": "number", "namespaces": "object"})
}

parameter_problems contains sprintf("namespaces.%s must be a number", [namespace]) if {
	some namespace, ceiling in _parameters.namespaces
	not is_number(ceiling)
}

_ceilings contains _parameters.ceiling

_ceilings contains _parameters.namespaces[input.metadata.namespace]

_ceilings contains _amount(input.metadata.annotations["policy.example.com/cost-ceiling"])

_cost(cluster) := _amount(cluster.metadata.labels["policy.example.com/cost"])

_amount(text) := to_number(text) if regex.match(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`, text)
