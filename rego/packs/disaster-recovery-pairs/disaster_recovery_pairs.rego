# METADATA
# title: Disaster-recovery pairs
# description: Workloads that are to survive a cluster run on both clusters of a pair, or on neither
package placement.packs.disaster_recovery_pairs

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["disaster-recovery-pairs"]

# METADATA
# description: Clusters that are of no pair
objections[name] contains "is of no disaster-recovery pair" if {
	_is_required
	some name, _ in data.kubernetes.clusters[_]
	not companions[name]
}

# METADATA
# description: The other cluster of each pair
companions[name] contains other if {
	_is_required
	some pair in _parameters.pairs
	some name in pair
	some other in pair
	name != other
}

# METADATA
# description: An answer that is none
problems contains sprintf(`annotation policy.example.com/disaster-recovery must be "pair" or "none", not %q`, [text]) if {
	text := input.metadata.annotations["policy.example.com/disaster-recovery"]
	not text in {"pair", "none"}
}

problems contains `annotation policy.example.com/disaster-recovery: the namespace needs "pair"` if {
	input.metadata.annotations["policy.example.com/disaster-recovery"] == "none"
	input.metadata.namespace in _parameters.namespaces
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"pairs": "array", "namespaces": "array"})
}

parameter_problems contains sprintf("pairs[%d] must be the names of two clusters", [index]) if {
	some index, pair in _parameters.pairs
	not _is_pair(pair)
}

parameter_problems contains sprintf("%s is in more than one of pairs", [name]) if {
	some index, pair in _parameters.pairs
	some other_index, other in _parameters.pairs
	index < other_index
	some name in pair
	name in other
}

_is_required if input.metadata.annotations["policy.example.com/disaster-recovery"] == "pair"

_is_required if input.metadata.namespace in _parameters.namespaces

_is_pair(pair) if {
	count({name | some name in pair; is_string(name)}) == 2
	count(pair) == 2
}
