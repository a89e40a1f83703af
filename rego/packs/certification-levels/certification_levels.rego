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
problems contains sprintf("annotation policy.example.com/certifications: %q must be as pci=2, of one of %s", [part, _names]) if {
	some part in split(input.metadata.annotations["policy.example.com/certifications"], ",")
	not _is_known(part)
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"certifications": "array", "namespaces": "object"})
}

parameter_problems contains "certifications are missing" if {
	is_object(_parameters)
	not "certifications" in object.keys(_parameters)
}

parameter_problems contains sprintf("certifications must be names, and %v is none", [certification]) if {
	is_array(_parameters.certifications)
	some certification in _parameters.certifications
	not _is_name(certification)
}

parameter_problems contains sprintf("namespaces.%s must be levels by one of %s", [namespace, _names]) if {
	some namespace, levels in _parameters.namespaces
	not _are_levels(levels)
}

# Defined whatever the parameters are, so that no check fails with them.
_known := {certification | some certification in _parameters.certifications; is_string(certification)}

_names := concat(", ", sort(_known))

# An annotation can say it.
_is_name(certification) if regex.match(`^[^,=\s]([^,=]*[^,=\s])?$`, certification)

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
	certification in _known
}

_are_levels(levels) if {
	is_object(levels)
	every certification, level in levels {
		certification in _known
		parameters.is_whole(level)
	}
}
