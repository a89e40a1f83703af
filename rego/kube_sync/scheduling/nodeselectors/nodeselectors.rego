# METADATA
# title: Node selectors
# description: |
#   A pod may leave the node selector out, unless a key is required; each key that it has must be
#   listed with its value, an empty list standing for any value and an empty map for any key.
package kube_sync.scheduling.nodeselectors

# METADATA
# description: Why a spec denies this pod its node selector, or the lack of a key
denials(pod, spec) := _missing(pod, spec) | _unlisted(pod.nodeSelector, spec)

_missing(pod, spec) := {message |
	not pod.nodes_were_judged
	selector := pod.nodeSelector
	some key, wanted in spec.required.nodeSelectors
	not _has(selector, key, wanted)
	message := sprintf("spec.nodeSelector[%s]: %s is not what is required, %s", [
		key,
		json.marshal(object.get(selector, key, null)),
		_described(wanted),
	])
}

_unlisted(selector, spec) := {message |
	some key, value in selector
	not _is_allowed(key, value, spec)
	message := sprintf("spec.nodeSelector[%s]: %s is not allowed", [key, json.marshal(value)])
}

_has(selector, key, wanted) if _lists(wanted, selector[key])

_is_allowed(_, _, spec) if spec.allowed.nodeSelectors == {}

_is_allowed(key, value, spec) if _lists(spec.allowed.nodeSelectors[key], value)

_is_allowed(key, value, spec) if _lists(spec.required.nodeSelectors[key], value)

_is_allowed(key, value, spec) if value == spec["default"].nodeSelector[key]

_lists([], value) if is_string(value)

_lists(values, value) if value in values

_described([]) := "any value"

_described(wanted) := concat(" ", ["one of", json.marshal(wanted)]) if wanted != []
