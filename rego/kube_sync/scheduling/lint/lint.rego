# METADATA
# title: Lint
# description: |
#   What a valid policy says that is likely not what was meant. The policy is in force all the same;
#   the findings are for whoever wrote it.
package kube_sync.scheduling.lint

import data.kube_sync.scheduling.affinities
import data.kube_sync.scheduling.defaults
import data.kube_sync.scheduling.nodeselectors
import data.kube_sync.scheduling.priorityclasses
import data.kube_sync.scheduling.schedulernames
import data.kube_sync.scheduling.shapes

# METADATA
# description: The findings about a policy, of which the canonical spec is given as well
findings(spec, policy) := union({
	_nulls(policy),
	_alternatives(spec),
	_self_denying(spec),
	_unreachable(spec),
	_useless(spec),
})

_nulls(policy) := {message |
	some section in ["required", "allowed", "default"]
	some field, null in policy.spec[section]
	message := sprintf("spec.%s.%s: null counts as absent", [section, field])
}

_hard := "requiredDuringSchedulingIgnoredDuringExecution"

_alternatives(spec) := {message |
	some [section, field, kind] in {
		["default", "affinity", "nodeAffinity"],
		["required", "affinities", "nodeAffinities"],
	}
	count(spec[section][field][kind][_hard].nodeSelectorTerms) > 1
	message := sprintf(
		"spec.%s.%s.%s.%s.nodeSelectorTerms: Kubernetes follows any one of several terms, not all of them; put the expressions into one term to require all",
		[section, field, kind, _hard],
	)
}

# The pod that the default makes of an empty one, before the rest of the spec.
_self_denying(spec) := {sprintf("spec.default: does not satisfy spec.required: %s", [denial]) |
	spec["default"]
	required := {"required": spec.required, "allowed": _everything}
	pod := defaults.injected(_nothing, spec["default"])
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
