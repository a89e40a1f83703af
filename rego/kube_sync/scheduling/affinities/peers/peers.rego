# METADATA
# title: Pod affinity and anti-affinity
# description: |
#   A term fits one pattern whole: its topology key, each requirement of its selector (labels and
#   label keys are requirements too), and its namespaces, which are the pod's own if it names none.
package kube_sync.scheduling.affinities.peers

import data.kube_sync.scheduling.affinities.expressions

# METADATA
# description: The terms of a half with their paths, in one form whether required or preferred
terms(pod, kind, half) := [found |
	some index, given in object.get(pod.affinity, [kind, half], null)
	found := _term(pod, half, index, given)
]

# METADATA
# description: The patterns of a half
patterns(half) := half if is_array(half)

patterns(half) := [] if not is_array(half)

# METADATA
# description: The paths of the terms, with what they say, that no pattern allows
unlisted(found, listed) := {message |
	some term in found
	not _is_listed(term, listed)
	message := sprintf("%s: %s", [term.path, json.marshal(term.given)])
}

# METADATA
# description: The required patterns that no term meets
unmet(found, wanted) := {message |
	some pattern in wanted
	not _is_met(found, pattern)
	message := concat(" ", ["no term has the required", json.marshal(pattern)])
}

# METADATA
# description: |
#   The terms of a half without the pod's own labels, which the API server writes into a selector
#   beside `matchLabelKeys` and `mismatchLabelKeys` before webhooks see the pod for the last time
without_own_labels(pod, half, items) := [[object.get(item, "weight", null), object.union(given, {"labelSelector": selector})] |
	some item in items
	given := _given(half, item)
	written := [_of_own_label(pod, key, operator) |
		some field, operator in {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}
		some key in _list(given, field)
	]
	asked := _filled(given, "labelSelector", {})
	requirements := [requirement |
		some requirement in _list(asked, "matchExpressions")
		not requirement in written
	]
	selector := object.union(object.remove(asked, ["matchExpressions"]), {"matchExpressions": requirements})
]

_is_listed(term, listed) if {
	some pattern in listed
	_fits(term, pattern)
}

# A term that asks for nothing fits much, but has nothing of what is required.
_is_met(found, pattern) if {
	some term in found
	_fits(term, pattern)
	every wanted in _list(pattern, "matchExpressions") {
		some requirement in term.requirements
		expressions.fits(requirement, wanted)
	}
}

_fits(term, pattern) if {
	_fits_topology(term, pattern)
	_fits_namespaces(term, pattern)
	_fits_selector(term, pattern)
}

_fits_topology(_, pattern) if pattern.topologyKeys == []

_fits_topology(term, pattern) if term.topologyKey in pattern.topologyKeys

_fits_namespaces(_, pattern) if pattern.namespaces == []

_fits_namespaces(term, pattern) if {
	not term.selects_namespaces
	every namespace in term.namespaces {
		namespace in _listed_namespaces(term, pattern)
	}
}

_listed_namespaces(term, pattern) := [term.own] if object.get(pattern, "namespaces", null) == null

_listed_namespaces(_, pattern) := pattern.namespaces if is_array(pattern.namespaces)

_fits_selector(_, pattern) if pattern.matchExpressions == []

_fits_selector(term, pattern) if {
	every requirement in term.requirements {
		some wanted in _list(pattern, "matchExpressions")
		expressions.fits(requirement, wanted)
	}
}

_term(pod, half, index, item) := {
	"path": sprintf("[%d]%s", [index, _below(half)]),
	"given": given,
	"own": pod.namespace,
	"topologyKey": object.get(given, "topologyKey", ""),
	"namespaces": _namespaces(pod, given),
	"selects_namespaces": object.get(given, "namespaceSelector", null) != null,
	"requirements": _requirements(pod, given),
} if {
	given := _given(half, item)
}

_below("preferredDuringSchedulingIgnoredDuringExecution") := ".podAffinityTerm"

_below("requiredDuringSchedulingIgnoredDuringExecution") := ""

_given("requiredDuringSchedulingIgnoredDuringExecution", item) := item

_given("preferredDuringSchedulingIgnoredDuringExecution", item) := _filled(item, "podAffinityTerm", {})

_namespaces(pod, given) := [pod.namespace] if {
	_list(given, "namespaces") == []
	object.get(given, "namespaceSelector", null) == null
}

_namespaces(_, given) := _list(given, "namespaces") if _list(given, "namespaces") != []

_namespaces(_, given) := [] if {
	_list(given, "namespaces") == []
	object.get(given, "namespaceSelector", null) != null
}

_requirements(pod, given) := array.flatten([
	[{"key": key, "operator": "In", "values": [value]} | some key, value in _filled(selector, "matchLabels", {})],
	_list(selector, "matchExpressions"),
	[_of_own_label(pod, key, "In") | some key in _list(given, "matchLabelKeys")],
	[_of_own_label(pod, key, "NotIn") | some key in _list(given, "mismatchLabelKeys")],
]) if {
	selector := _filled(given, "labelSelector", {})
}

# The API server writes the pod's own label into the selector, once webhooks have been asked.
_of_own_label(pod, key, operator) := {
	"key": key,
	"operator": operator,
	"values": [object.get(pod.labels, key, "")],
}

_list(document, field) := _filled(document, field, [])

_filled(document, field, otherwise) := value if {
	value := object.get(document, field, otherwise)
	value != null
} else := otherwise
