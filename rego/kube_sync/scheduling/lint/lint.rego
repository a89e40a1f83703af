# METADATA
# title: Lint
# description: |
#   What a valid policy says that is likely not what was meant. The policy is in force all the same;
#   the findings are for whoever wrote it.
package kube_sync.scheduling.lint

import data.kube_sync.scheduling.affinities
import data.kube_sync.scheduling.defaults
import data.kube_sync.scheduling.nodeselectors
import data.kube_sync.scheduling.pods
import data.kube_sync.scheduling.priorityclasses
import data.kube_sync.scheduling.schedulernames
import data.kube_sync.scheduling.settings
import data.kube_sync.scheduling.shapes

# METADATA
# description: The findings about a policy, of which the canonical spec is given as well
findings(spec, policy) := union({
	_nulls(policy),
	_alternatives(spec),
	_self_denying(spec),
	_unreachable(spec),
	_useless(spec),
	_filled_in_schedulers(spec),
	_filled_in_classes(spec),
})

_nulls(policy) := {message |
	some section in ["required", "allowed", "default"]
	some field, null in policy.spec[section]
	message := sprintf("spec.%s.%s: null counts as absent", [section, field])
}

_hard := "requiredDuringSchedulingIgnoredDuringExecution"

_alternatives(spec) := {message |
	count(spec["default"].affinity.nodeAffinity[_hard].nodeSelectorTerms) > 1
	message := sprintf(
		"spec.default.affinity.nodeAffinity.%s.nodeSelectorTerms: Kubernetes follows any one of several terms, not all of them; put the expressions into one term to require all",
		[_hard],
	)
}

# What a policy comes to in a cluster whose API server leaves no scheduler name empty.
_filled_in_schedulers(spec) := {message |
	name := spec["default"].schedulerName
	name != "default-scheduler"
	not settings.default_scheduler_is_unspecified
	schedulernames.allows_filled_in(spec)
	message := concat("", [
		"spec.default.schedulerName: no pod gets it. The API server writes default-scheduler into a pod that ",
		"names no scheduler, and this policy allows that one; do not allow it, or set scheduling.default_scheduler_is_unspecified",
	])
} | {message |
	name := spec["default"].schedulerName
	name != "default-scheduler"
	not _keeps_filled_in(spec)
	message := sprintf(
		"spec.default.schedulerName: a pod that asks for default-scheduler gets %s as well, since the API server writes that name into every pod that names none",
		[json.marshal(name)],
	)
}

_keeps_filled_in(spec) if {
	not settings.default_scheduler_is_unspecified
	schedulernames.allows_filled_in(spec)
}

_filled_in_classes(spec) := {message |
	some name in pods.unasked_priority_classes
	not priorityclasses.is_named(name, spec)
	message := sprintf(
		"PriorityClass %s is the global default of the cluster, which the API server gives to pods that name none: no policy has to allow it",
		[name],
	)
}

# The pod that the default makes of an empty one, before the rest of the spec.
_self_denying(spec) := {sprintf("spec.default: does not satisfy spec.required: %s", [denial]) |
	spec["default"]
	required := {"required": spec.required, "allowed": _everything, "default": spec["default"]}
	pod := defaults.injected(_nothing, spec["default"], {""})
	some field, denials in {
		"schedulerName": schedulernames.denials(pod, required),
		"priorityClasseName": priorityclasses.denials(pod, required),
		"nodeSelector": nodeselectors.denials(pod, required),
		"affinity": affinities.denials(pod, required),
	}
	spec["default"][field]
	some denial in denials
}

_everything := {"schedulerNames": [], "priorityClasseNames": [], "nodeSelectors": {}, "affinities": {}}

_nothing := {
	"namespace": "default",
	"labels": {},
	"nodeName": "",
	"nodes_were_judged": false,
	"schedulerName": "",
	"priorityClassName": "",
	"nodeSelector": {},
	"tolerations": [],
	"affinity": {},
}

_unreachable(spec) := {message |
	walk(spec, [path, pattern])
	some complaint in _complaints(path, pattern)
	message := sprintf("spec%s: %s, so nothing fits this pattern", [shapes.field(path), complaint])
}

_complaints(["allowed", "tolerations", _], pattern) := _absent(pattern, ["effects", "keys"]) | (_unknown(pattern, "operators", {"Equal", "Exists", "Gt", "Lt"}) | (_unknown(pattern, "effects", {"NoExecute", "NoSchedule", "PreferNoSchedule"}) | _valued_existence(pattern)))

_complaints(path, pattern) := _absent(pattern, ["keys", "operators"]) | _unknown(
	pattern,
	"operators",
	{"DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"},
) if {
	path[count(path) - 2] == "matchExpressions"
	path[1] == "affinities"
}

_complaints(path, pattern) := _absent(pattern, ["topologyKeys"]) if {
	path[1] == "affinities"
	path[2] in {"podAffinities", "podAntiAffinities"}
	count(path) == 5
}

_absent(pattern, fields) := {sprintf("%s: absent, which allows nothing", [field]) |
	some field in fields
	object.get(pattern, field, null) == null
}

_unknown(pattern, field, known) := {sprintf("%s: none is one of Kubernetes's", [field]) |
	given := {value | some value in pattern[field]}
	count(given) > 0
	count(given & known) == 0
}

# Exists tolerates every value, so it needs the permission for every value.
_valued_existence(pattern) := {"values: listed, but Exists has none" |
	pattern.operators == ["Exists"]
	count(pattern.values) > 0
}

_useless(spec) := {message |
	message := "no scheduler is allowed: a pod needs a second policy that allows one"
	not spec.required.schedulerNames
	not spec.allowed.schedulerNames
	not spec["default"].schedulerName
}
