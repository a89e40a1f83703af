# METADATA
# title: Data residency
# description: Workloads stay in the regions of the jurisdictions that they or their namespace name
package placement.packs.data_residency

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["data-residency"]

# METADATA
# description: Clusters in a region that is not in each of these jurisdictions
objections[name] contains sprintf("region %q is not in %s", [_region(cluster), jurisdiction]) if {
	some jurisdiction in _required
	some name, cluster in data.kubernetes.clusters[_]
	not _within(_region(cluster), jurisdiction)
}

# METADATA
# description: A jurisdiction that the parameters do not have
problems contains sprintf("annotation policy.example.com/jurisdiction: there is no %q", [jurisdiction]) if {
	jurisdiction := input.metadata.annotations["policy.example.com/jurisdiction"]
	not _parameters.jurisdictions[jurisdiction]
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"jurisdictions": "object", "namespaces": "object"})
}

parameter_problems contains sprintf("jurisdictions.%s must be a list of beginnings of regions", [jurisdiction]) if {
	some jurisdiction, beginnings in _parameters.jurisdictions
	not _is_list_of_beginnings(beginnings)
}

parameter_problems contains sprintf("namespaces.%s: there is no jurisdiction %v", [namespace, jurisdiction]) if {
	some namespace, jurisdiction in _parameters.namespaces
	not _parameters.jurisdictions[jurisdiction]
}

_required contains input.metadata.annotations["policy.example.com/jurisdiction"]

_required contains _parameters.namespaces[input.metadata.namespace]

_within(region, jurisdiction) if {
	some beginning in _parameters.jurisdictions[jurisdiction]
	startswith(region, beginning)
}

default _region(_) := ""

_region(cluster) := cluster.metadata.labels["topology.kubernetes.io/region"]

_is_list_of_beginnings(value) if {
	is_array(value)
	count(value) > 0
	every beginning in value {
		regex.match(`.`, beginning)
	}
}
