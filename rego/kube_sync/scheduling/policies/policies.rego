# METADATA
# title: Policies
# description: |
#   The usable policies in one spelling, by name, and those that say what no policy may say: these
#   are left out of every decision.
package kube_sync.scheduling.policies

import data.kube_sync.scheduling.use
import data.kube_sync.scheduling.validation

# METADATA
# description: The specs of the usable policies, by name
specs[name] := spec if {
	some name in use.names
	spec := _valid(data.kubernetes.schedulingpolicies[name])
}

# METADATA
# description: The names of policies that could be used if they were valid, in order
ignored := sort(use.names - object.keys(specs))

_valid(policy) := policy.spec if {
	validation.is_plain(policy)
} else := canonical(policy) if {
	count(validation.problems(policy) - validation.tolerated) == 0
}

# METADATA
# description: |
#   The spec of a policy without problems, in one spelling: no aliases and no nulls, preferred node
#   terms like required ones, expressions of the default with one key and one operator.
canonical(policy) := object.union(_sections(spec), _affinities_of_old(spec)) if {
	spec := _given(policy)
}

_given(policy) := spec if {
	spec := policy.spec
	spec != null
} else := {}

_sections(spec) := {section: fields |
	some section in ["required", "allowed", "default"]
	spec[section] != null
	fields := {object.get(_spelling, field, field): _canonical(field, value) |
		some field, value in spec[section]
		value != null
		not _counts_as_absent(section, field, value)
	}
}

# As the proposal says of it; elsewhere an empty list has a meaning or is refused.
_counts_as_absent("required", field, []) if object.get(_spelling, field, field) == "schedulerNames"

_spelling := {
	"SchedulerName": "schedulerName",
	"SchedulerNames": "schedulerNames",
	"priorityClassName": "priorityClasseName",
	"priorityClassNames": "priorityClasseNames",
}

_affinities_of_old(spec) := {"allowed": {"affinities": _affinities(value)}} if {
	value := spec.allowedAffinities
	value != null
} else := {}

_canonical(field, value) := value if not field in {"affinities", "affinity"}

_canonical("affinities", value) := _affinities(value)

_canonical("affinity", value) := _affinity(value)

_preferred := "preferredDuringSchedulingIgnoredDuringExecution"

_affinities(value) := json.patch(value, [{
	"op": "replace",
	"path": ["nodeAffinities", _preferred],
	"value": {"nodeSelectorTerms": [{"matchExpressions": expressions} |
		some term in value.nodeAffinities[_preferred]
		expressions := object.get(object.get(term, "preference", term), "matchExpressions", [])
	]},
}]) if {
	is_array(value.nodeAffinities[_preferred])
} else := value

# Expressions may be written like patterns, with one key and one operator.
_affinity(value) := json.patch(value, [operation |
	walk(value, [path, list])
	some from, to in {"keys": "key", "operators": "operator"}
	path[count(path) - 1] == from
	some operation in [
		{"op": "remove", "path": path},
		{"op": "add", "path": array.concat(array.slice(path, 0, count(path) - 1), [to]), "value": list[0]},
	]
])
