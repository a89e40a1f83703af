# METADATA
# title: Node affinity
# description: |
#   Kubernetes follows any one of the terms of a node affinity, and of a term all expressions. Fields
#   (`matchFields`) are judged like labels, and need the permission for their key as well.
package kube_sync.scheduling.affinities.nodes

import data.kube_sync.scheduling.affinities.expressions

# METADATA
# description: The terms that nodes are required to meet, of which any one is enough
hard_terms(affinity) := terms if {
	terms := affinity.nodeAffinity[_hard].nodeSelectorTerms
	terms != null
} else := []

# METADATA
# description: An affinity with other required terms of nodes; without any, these are left out
replaced(affinity, terms) := object.union(object.remove(affinity, ["nodeAffinity"]), {"nodeAffinity": object.union(
	object.remove(_object(object.get(affinity, "nodeAffinity", {})), [_hard]),
	{_hard: {"nodeSelectorTerms": terms}},
)}) if {
	terms != []
}

replaced(affinity, []) := object.union(object.remove(affinity, ["nodeAffinity"]), {"nodeAffinity": rest |
	rest := object.remove(_object(object.get(affinity, "nodeAffinity", {})), [_hard])
	rest != {}
})

# METADATA
# description: The terms that mean one of `terms` and, if there are any, one of `others`
both(terms, []) := terms

both(terms, others) := [_joined(term, other) | some term in terms; some other in others] if others != []

# METADATA
# description: |
#   Terms with the default put into each of them: what the default says of keys that the term does
#   not speak of. The terms of a default say different things as a rule, which then hold together;
#   where they speak of one key, they are alternatives, and each term is followed by one for each.
completed(terms, given) := terms if terms == given

completed(terms, given) := array.flatten([_completions(term, given) | some term in terms]) if terms != given

# METADATA
# description: The expressions of one field of a term
listed(term, field) := found if {
	found := term[field]
	found != null
} else := []

# METADATA
# description: The terms of a half, each a list of expressions with their paths
terms(affinity, "requiredDuringSchedulingIgnoredDuringExecution") := [found |
	some index, term in hard_terms(affinity)
	found := _expressions(term, sprintf(".nodeSelectorTerms[%d]", [index]))
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
# description: The expressions of a half, of all its terms
expressions_of(half) := {expression |
	some term in listed(_object(half), "nodeSelectorTerms")
	some field in _fields
	some expression in listed(term, field)
}

# METADATA
# description: The paths, with their values, that neither a pattern allows nor the default says itself
unlisted(found, patterns, given) := _empty(found, patterns) | {message |
	some term in found
	some [path, expression] in term
	not expression in given
	not _is_listed(expression, patterns)
	message := sprintf("%s: %s", [path, json.marshal(expression)])
}

# A term that says nothing fits every pattern, but there has to be one.
_empty(found, []) := {": a term without expressions" | some term in found; count(term) == 0}

_empty(_, patterns) := set() if patterns != []

# METADATA
# description: The required patterns that not `every` term meets, or that none does
unmet(found, wanted, every_term) := {message |
	some pattern in wanted
	not _is_met(found, pattern, every_term)
	message := concat(" ", [_quantity(found, every_term), json.marshal(pattern)])
}

_quantity([], _) := "no term has the required"

_quantity(found, false) := "no term has the required" if found != []

_quantity(found, true) := "not every term has the required" if found != []

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

_is_listed(expression, patterns) if {
	some pattern in patterns
	expressions.fits(expression, pattern)
}

_hard := "requiredDuringSchedulingIgnoredDuringExecution"

_fields := ["matchExpressions", "matchFields"]

_expressions(term, path) := [[at, expression] |
	some field in _fields
	some index, expression in object.get(term, field, [])
	at := sprintf("%s.%s[%d]", [path, field, index])
]

_joined(term, other) := {field: array.concat(listed(term, field), listed(other, field)) |
	some field in _fields
	array.concat(listed(term, field), listed(other, field)) != []
}

# Kubernetes matches a term that says nothing with no node, and it stays so.
_completions(term, _) := [term] if _joined(term, {}) == {}

_completions(term, given) := [object.union(object.remove(term, _fields), _joined(term, lacking)) |
	some lacking in {lacking |
		some other in _alternatives(given)
		lacking := _lacking(term, other)
	}
] if {
	_joined(term, {}) != {}
}

_lacking(term, other) := {field: [expression |
	some expression in listed(other, field)
	not expression.key in {own.key | some own in listed(term, field)}
] |
	some field in _fields
}

_alternatives(given) := given if {
	some field in _fields
	some first, one in given
	some second, other in given
	first < second
	listed(one, field)[_].key == listed(other, field)[_].key
} else := [{field: [expression | some term in given; some expression in listed(term, field)] | some field in _fields}]

_object(value) := value if is_object(value)

_object(value) := {} if not is_object(value)
