# METADATA
# title: Tolerations
# description: |
#   Each toleration of a pod must fit one pattern whole: one that is harmless licenses no other. In
#   Kubernetes an absent operator is Equal, an absent effect means all effects, and Exists without a
#   key all keys; what stands for all fits only a pattern that lists nothing, which allows all.
package kube_sync.scheduling.tolerations

import data.kube_sync.scheduling.defaults
import data.kube_sync.scheduling.pods

# METADATA
# description: Why a spec denies this pod its tolerations
denials(pod, spec) := {message |
	some index, toleration in pod.tolerations
	not toleration in pods.unasked_tolerations
	not _is_allowed(toleration, spec)
	message := sprintf("spec.tolerations[%d]: %s is not allowed", [index, json.marshal(toleration)])
}

_is_allowed(_, spec) if spec.allowed.tolerations == []

_is_allowed(toleration, spec) if {
	some pattern in spec.allowed.tolerations
	_fits(_parts(toleration), pattern)
}

_is_allowed(toleration, spec) if {
	some given in defaults.expanded(spec["default"].tolerations)
	_plain(given) == _plain(toleration)
}

_fits(parts, pattern) if {
	_lists(pattern, "effects", parts.effect)
	_lists(pattern, "keys", parts.key)
	_permits_operator(pattern, parts.operator)
	_permits_value(pattern, parts)
}

_lists(pattern, field, _) if pattern[field] == []

_lists(pattern, field, value) if {
	value != ""
	value in pattern[field]
}

_permits_operator(pattern, operator) if _lists(pattern, "operators", _operator(operator))

# Nothing is listed, not even that anything may be there.
_permits_operator(pattern, "") if object.get(pattern, "operators", null) == null

_permits_value(pattern, _) if pattern.values == []

_permits_value(pattern, parts) if {
	_operator(parts.operator) != "Exists"
	parts.value in pattern.values
}

_permits_value(pattern, parts) if {
	parts.value == ""
	object.get(pattern, "values", null) == null
}

_operator("") := "Equal"

_operator(operator) := operator if operator != ""

_parts(toleration) := {field: _text(object.get(toleration, field, "")) |
	some field in ["key", "operator", "value", "effect"]
}

_text(null) := ""

_text(value) := value if value != null

# Equal whether what is empty is written down or not.
_plain(toleration) := [
	object.union(_parts(toleration), {"operator": _operator(_parts(toleration).operator)}),
	object.get(toleration, "tolerationSeconds", null),
]
