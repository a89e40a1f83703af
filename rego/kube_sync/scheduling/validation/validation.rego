# METADATA
# title: Validation
# description: |
#   What makes a SchedulingPolicy no policy at all: fields that are not documented, wrong types,
#   lists that the design proposal calls invalid when they are empty, and contradictions. Such a
#   policy is refused when it is stored; one that was stored all the same is left out of decisions.
package kube_sync.scheduling.validation

import data.kube_sync.scheduling.lint
import data.kube_sync.scheduling.policies
import data.kube_sync.scheduling.shapes

# METADATA
# description: Of the policy in `input.object`, what it is refused for, and what is likely not meant
report := {"problems": [], "findings": sort(findings)} if {
	count(_found - tolerated) == 0
	counted := {sprintf("%s; in decisions it counts as absent", [problem]) | some problem in _found}
	findings := counted | lint.findings(policies.canonical(input.object), input.object)
} else := {"problems": sort(_found), "findings": []}

# METADATA
# description: |
#   What a policy is refused for, but not left out of decisions: the proposal calls such a list no
#   valid syntax, and equal to not specifying the item.
tolerated := {
	"spec.required.schedulerNames: must not be empty",
	"spec.required.SchedulerNames: must not be empty",
}

default _found := {"the policy cannot be read"}

_found := problems(input.object)

# METADATA
# description: What this policy is refused for, each with the path of its field
problems(policy) := {"the policy must be an object"} if not is_object(policy)

problems(policy) := _first_found(misshapen, policy) if {
	is_object(policy)
	misshapen := shapes.problems("", object.remove(policy, _not_ours), _fields)
}

# METADATA
# description: |
#   Whether a policy is written without anything to translate, and so plainly that it has no
#   problems. Every usable policy is looked at in every decision, and a walk over its paths costs ten
#   times what it costs to see that a list holds texts only.
is_plain(policy) if {
	object.keys(policy) - ({"spec"} | _not_ours) == set()
	object.keys(policy.spec) - {"required", "allowed", "default"} == set()
	every section, fields in policy.spec {
		is_object(fields)
		every field, value in fields {
			_is_plain(section, field, value)
		}
	}
}

_not_ours := {"apiVersion", "kind", "metadata", "status"}

_first_found(set(), policy) := _contradictions(object.get(policy, "spec", {}))

_first_found(misshapen, _) := misshapen if count(misshapen) > 0

_is_plain(section, field, values) if {
	section != "default"
	field in {"schedulerNames", "priorityClasseNames"}
	_is_texts(values)
	[section, values] != ["required", []]
	not "" in values
}

_is_plain("allowed", "nodeNames", names) if {
	_is_texts(names)
	not "" in names
}

_is_plain(section, "nodeSelectors", selectors) if {
	section != "default"
	is_object(selectors)
	every values in selectors {
		_is_texts(values)
	}
}

_is_plain("allowed", "tolerations", patterns) if _are_patterns(patterns, ["keys", "operators", "values", "effects"])

_is_plain(section, "affinities", {"nodeAffinities": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}) if {
	section != "default"
	_is_array_of_some(terms)
	every term in terms {
		object.keys(term) == {"matchExpressions"}
		_is_array_of_some(term.matchExpressions)
		_are_patterns(term.matchExpressions, ["keys", "operators", "values"])
	}
}

_is_plain(section, "affinities", {}) if section != "default"

_is_plain("default", field, name) if {
	field in {"schedulerName", "priorityClasseName"}
	is_string(name)
	name != ""
}

_is_plain("default", "nodeSelector", selector) if {
	is_object(selector)
	_is_texts([value | some value in selector])
}

_are_patterns(patterns, fields) if {
	is_array(patterns)
	every pattern in patterns {
		object.remove(pattern, fields) == {}
		every values in pattern {
			_is_texts(values)
		}
	}
}

_is_array_of_some(values) if {
	is_array(values)
	values != []
}

# Of anything but texts, concat is undefined.
_is_texts(values) if {
	is_array(values)
	concat("", values)
}

_contradictions(spec) := (_twice(spec) | _unsound_tolerations(spec)) | _unsound_expressions(spec)

_spellings := {
	["required", "schedulerNames", "SchedulerNames"],
	["required", "priorityClasseNames", "priorityClassNames"],
	["allowed", "schedulerNames", "SchedulerNames"],
	["allowed", "priorityClasseNames", "priorityClassNames"],
	["default", "schedulerName", "SchedulerName"],
	["default", "priorityClasseName", "priorityClassName"],
}

_twice(spec) := _twice_in_a_section(spec) | {message |
	object.get(spec, ["allowed", "affinities"], null) != null
	object.get(spec, "allowedAffinities", null) != null
	message := "spec.allowedAffinities: also given as spec.allowed.affinities"
}

_twice_in_a_section(spec) := {message |
	some [section, field, alias] in _spellings
	spec[section][field] != null
	spec[section][alias] != null
	message := sprintf("spec.%s.%s: also given as spec.%s.%s", [section, alias, section, field])
}

_unsound_tolerations(spec) := {message |
	some index, toleration in spec["default"].tolerations
	some complaint in _unsound(object.filter(toleration, {name | some name, value in toleration; not value in {null, ""}}))
	message := sprintf("spec.default.tolerations[%d]%s", [index, complaint])
}

_unsound(toleration) := {complaint |
	some complaint, is_found in {
		".operator: must be Equal, Exists, Gt or Lt": _unknown(toleration, "operator", {"Equal", "Exists", "Gt", "Lt"}),
		".effect: must be NoSchedule, PreferNoSchedule or NoExecute": _unknown(toleration, "effect", {"NoSchedule", "PreferNoSchedule", "NoExecute"}),
		".values: also given as value": count({"value", "values"} & object.keys(toleration)) == 2,
		": Exists has no value": _exists_with_value(toleration),
		".key: may be absent only where the operator is Exists": _keyless(toleration),
		".tolerationSeconds: needs the effect NoExecute": _seconds_without_execution(toleration),
	}
	is_found
}

default _unknown(_, _, _) := false

_unknown(toleration, field, known) if not object.get(toleration, field, "") in (known | {""})

default _exists_with_value(_) := false

_exists_with_value(toleration) if {
	toleration.operator == "Exists"
	count({"value", "values"} & object.keys(toleration)) > 0
}

default _keyless(_) := false

_keyless(toleration) if {
	not toleration.key
	object.get(toleration, "operator", "Equal") != "Exists"
}

default _seconds_without_execution(_) := false

_seconds_without_execution(toleration) if {
	"tolerationSeconds" in object.keys(toleration)
	object.get(toleration, "effect", "") != "NoExecute"
}

# The proposal writes the default's expressions once like a pod's, and once like patterns.
_unsound_expressions(spec) := {message |
	walk(spec["default"].affinity, [path, expression])
	path[count(path) - 2] in {"matchExpressions", "matchFields"}
	some one, list in {"key": "keys", "operator": "operators"}
	count(_named(expression, one, list)) != 1
	message := sprintf("spec.default.affinity%s.%s: exactly one is needed", [shapes.field(path), one])
}

_named(expression, one, list) := array.concat(
	[value | value := expression[one]; value != null],
	[value | some value in expression[list]],
)
