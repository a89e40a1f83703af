# METADATA
# title: Certification levels
# description: Workloads run on clusters that are certified at least as high as they, or their namespace, need
package placement.packs.certification_levels

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["certification-levels"]

# METADATA
# description: Clusters without the certification, or below its level
objections[name] contains sprintf("%s %d is below %d", [certification, level, needed]) if {
	some certification, levels in _required
	needed := max(levels)
	some name, cluster in data.kubernetes.clusters[_]
	level := object.get(_certified(cluster), certification, 0)
	level < needed
}

# METADATA
# description: A certification that the parameters do not have, or text that is none
problems contains sprintf("annotation policy.example.com/certifications: %q must be as pci=2, of one of %s", [part, known]) if {
	some part in split(input.metadata.annotations["policy.example.com/certifications"], ",")
	known := concat(", ", sort(_parameters.certifications))
	not _is_known(part)
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"certifications": "array", "namespaces": "object"})
}

parameter_problems contains sprintf("namespaces.%s must be levels by one of %s", [namespace, known]) if {
	known := concat(", ", sort(_parameters.certifications))
	some namespace, levels in _parameters.namespaces
	not _are_levels(levels)
}

_required[certification] contains level if {
	some [certification, level] in _pairs(input.metadata.annotations["policy.example.com/certifications"])
}

_required[certification] contains level if {
	some certification, level in _parameters.namespaces[input.metadata.namespace]
}

_certified(cluster) := {certification: min(levels) |
	pairs := _pairs(cluster.metadata.annotations["policy.example.com/certifications"])
	some [certification, _] in pairs
	levels := {level | some [name, level] in pairs; name == certification}
}

# The levels in a text as `pci=2, iso27001=1`, without what is none.

_pairs(text) := {[trim_space(certification), level] |
	some part in split(text, ",")
	[certification, number] := split(part, "=")
	level := parameters.whole_number(trim_space(number))
}

_is_known(part) if {
	some [certification, _] in _pairs(part)
	certification in _parameters.certifications
}

_are_levels(levels) if {
	is_object(levels)
	every certification, level in levels {
		certification in _parameters.certifications
		is_number(level)
	}
}
