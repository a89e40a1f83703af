# METADATA
# title: Node affinity
# description: |
#   Kubernetes follows any one of the terms of a node affinity, and of a term all expressions. Fields
#   (`matchFields`) are judged like labels, and need the permission for their key as well.
package kube_sync.scheduling.affinities.nodes

import data.kube_sync.scheduling.affinities.expressions
import data.kube_sync.scheduling.pods

# METADATA
# description: The terms of a half, each a list of expressions with their paths
terms(affinity, "requiredDuringSchedulingIgnoredDuringExecution") := [found |
	half := object.get(affinity, ["nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"], null)
	some index, term in object.get(_object(half), "nodeSelectorTerms", [])
	found := _expressions(term, sprintf(".nodeSelectorTerms[%d]", [index]))
	not _is_the_controllers(term, found)
]

terms(affinity, "preferredDuringSchedulingIgnoredDuringExecution") := [found |
	half := object.get(affinity, ["nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"], null)
	some index, term in half
	found := _expressions(_object(object.get(term, "preference", {})), sprintf("[%d].preference", [index]))
]

# METADATA
# description: The patterns of a half, in one list
patterns(half) := [pattern |
	some term in object.get(_object(half), "nodeSelectorTerms", [])
	some pattern in term.matchExpressions
]

# METADATA
# description: The paths, with their values, that no pattern allows
unlisted(found, listed) := _empty(found, listed) | {message |
	some term in found
	some [path, expression] in term
	not _is_listed(expression, listed)
	message := sprintf("%s: %s", [path, json.marshal(expression)])
}

# A term that says nothing fits every pattern, but there has to be one.
_empty(found, []) := {": a term without expressions" | some term in found; count(term) == 0}

_empty(_, listed) := set() if listed != []

# METADATA
# description: The required patterns that no term meets or, if strict, that not every term meets
unmet(found, wanted, strict) := {message |
	some pattern in wanted
	not _is_met(found, pattern, strict)
	message := concat(" ", [_quantity(strict), json.marshal(pattern)])
}

_quantity(true) := "not every term has the required"

_quantity(false) := "no term has the required"

_is_met(found, pattern, false) if {
	some term in found
	_has(term, pattern)
}

_is_met(found, pattern, true) if {
	count(found) > 0
	every term in found {
		_has(term, pattern)
	}
}

_has(term, pattern) if {
	some [_, expression] in term
	expressions.fits(expression, pattern)
}

_is_listed(expression, listed) if {
	some pattern in listed
	expressions.fits(expression, pattern)
}

_expressions(term, path) := [[at, expression] |
	some field in ["matchExpressions", "matchFields"]
	some index, expression in object.get(term, field, [])
	not _is_a_daemonsets(field, expression)
	at := sprintf("%s.%s[%d]", [path, field, index])
]

# The DaemonSet controller ties each of its pods to a node by the node's name, in every term.
_is_a_daemonsets("matchFields", expression) if {
	expression.key == "metadata.name"
	expression.operator == "In"
	count(expression.values) == 1
	_was_judged(expression)
}

_was_judged(_) if pods.is_made_by_daemonset_controller

_was_judged(expression) if {
	pods.keeps_what_daemonset_controller_made
	required := input.oldObject.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
	some term in required.nodeSelectorTerms
	expression in term.matchFields
}

_is_the_controllers(term, []) if {
	some expression in term.matchFields
	_is_a_daemonsets("matchFields", expression)
}

_object(value) := value if is_object(value)

_object(value) := {} if not is_object(value)
