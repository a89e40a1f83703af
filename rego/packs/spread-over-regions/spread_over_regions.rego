# METADATA
# title: Spread over regions
# description: Regions have equal shares of a workload, and a placement has at least so many of them
package placement.packs.spread_over_regions

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["spread-over-regions"]

# METADATA
# description: The region of each cluster that says it
regions[name] contains cluster.metadata.labels["topology.kubernetes.io/region"] if {
	some name, cluster in data.kubernetes.clusters[_]
}

# METADATA
# description: In how many regions the workload has to run
minimum_regions := max(_minima)

# METADATA
# description: A minimum that is no number
problems contains sprintf("annotation policy.example.com/minimum-regions: %q is no whole number", [text]) if {
	text := input.metadata.annotations["policy.example.com/minimum-regions"]
	not parameters.whole_number(text)
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"regions": "number", "namespaces": "object"})
}

parameter_problems contains sprintf("regions must be a whole number, not %v", [_parameters.regions]) if {
	is_number(_parameters.regions)
	not parameters.is_whole(_parameters.regions)
}

parameter_problems contains sprintf("namespaces.%s must be a whole number", [namespace]) if {
	some namespace, minimum in _parameters.namespaces
	not parameters.is_whole(minimum)
}

_minima contains _parameters.regions

_minima contains _parameters.namespaces[input.metadata.namespace]

_minima contains parameters.whole_number(input.metadata.annotations["policy.example.com/minimum-regions"])
