# METADATA
# title: Expressions
# description: |
#   A requirement of a selector, of key, operator and values, against a pattern of keys, operators
#   and values: an empty list allows anything, an absent one nothing that is specified.
package kube_sync.scheduling.affinities.expressions

# METADATA
# description: Whether one pattern allows the whole expression
fits(expression, pattern) if {
	_lists(pattern.keys, expression.key)
	_lists(pattern.operators, expression.operator)
	_covers(pattern, _values(expression))
	_is_sound(expression)
}

_lists([], value) if is_string(value)

_lists(values, value) if value in values

_covers(pattern, _) if pattern.values == []

_covers(pattern, given) if {
	every value in given {
		value in object.get(pattern, "values", [])
	}
}

# An expression without values would meet any list of them.
_is_sound(expression) if not expression.operator in {"In", "NotIn"}

_is_sound(expression) if count(_values(expression)) > 0

_values(expression) := given if {
	given := object.get(expression, "values", [])
	given != null
} else := []
