# METADATA
# title: Selectors on labels and annotations
# description: |
#   The label selectors of Kubernetes (apimachinery, metav1.LabelSelector), for annotations too. A
#   selector that is absent or null asks for nothing.
package kube_sync.metadata.selector

import data.kube_sync.metadata.syntax

# METADATA
# description: True when a map of labels or annotations meets all these expressions, which have no faults
met(list, map) if {
	every expression in list { _met(expression.operator, expression, map) }
}

_met("In", expression, map) if _listed(expression, map)

_met("NotIn", expression, map) if not _listed(expression, map)

_met("Exists", expression, map) if _has(map, expression.key)

_met("DoesNotExist", expression, map) if not _has(map, expression.key)

_listed(expression, map) if map[expression.key] in expression.values

_has(map, key) if _ = map[key]

# METADATA
# description: What a selector asks for, as a list of expressions; empty for one that is absent
expressions(selector) := array.concat(
	[{"key": key, "operator": "In", "values": [value]} |
		some key, value in object.get(selector, "matchLabels", {})
	],
	object.get(selector, "matchExpressions", []),
) if {
	is_object(selector)
}

expressions(null) := []

# METADATA
# description: |
#   What is wrong with a selector on labels or on annotations (`kind`), as pairs of the path below it
#   and a message. Values for annotations are free, as annotations are.
faults(_, null) := set()

faults(_, selector) := {["", "must be an object"]} if {
	not is_object(selector)
	selector != null
}

faults(kind, selector) := ((unknown | shapes) | _label_faults(kind, selector)) | _expression_faults(kind, selector) if {
	is_object(selector)
	unknown := {[sprintf(".%s", [field]), "is no field of a selector"] |
		some field, _ in selector
		not field in {"matchLabels", "matchExpressions"}
	}
	shapes := {[sprintf(".%s", [field]), sprintf("must be %s", [shape])] |
		some [field, shape, ok] in [
			["matchLabels", "an object", is_object(object.get(selector, "matchLabels", {}))],
			["matchExpressions", "a list", is_array(object.get(selector, "matchExpressions", []))],
		]
		not ok
	}
}

_label_faults(kind, selector) := {[".matchLabels", message] |
	is_object(selector.matchLabels)
	some key, value in selector.matchLabels
	some message in (syntax.key_faults_of(kind, key) | syntax.value_faults_of(kind, value))
}

_expression_faults(kind, selector) := {[sprintf(".matchExpressions[%d]%s", [i, path]), message] |
	is_array(selector.matchExpressions)
	some i, expression in selector.matchExpressions
	some [path, message] in _faults_of(kind, expression)
}

_faults_of(_, expression) := {["", "must be an object"]} if not is_object(expression)

_faults_of(kind, expression) := (unknown | keys) | _value_faults(kind, expression) if {
	is_object(expression)
	unknown := {[sprintf(".%s", [field]), "is no field of an expression"] |
		some field, _ in expression
		not field in {"key", "operator", "values"}
	}
	keys := {[".key", message] |
		some message in syntax.key_faults_of(kind, object.get(expression, "key", null))
	}
}

_value_faults(kind, expression) := _given_faults(kind, object.get(expression, "values", null)) if {
	expression.operator in {"In", "NotIn"}
}

_value_faults(_, expression) := {[".values", message] |
	not object.get(expression, "values", null) in {null, []}
	message := sprintf("must not be given with %s", [expression.operator])
} if {
	expression.operator in {"Exists", "DoesNotExist"}
}

_value_faults(_, expression) := {[".operator", "must be In, NotIn, Exists or DoesNotExist"]} if {
	not object.get(expression, "operator", null) in {"In", "NotIn", "Exists", "DoesNotExist"}
}

_given_faults(_, values) := {[".values", "must be a list of at least one value"]} if {
	not _some_values(values)
}

_given_faults(kind, values) := {[sprintf(".values[%d]", [i]), message] |
	some i, value in values
	some message in syntax.value_faults_of(kind, value)
} if {
	_some_values(values)
}

_some_values(values) if {
	is_array(values)
	count(values) > 0
}

# METADATA
# description: An expression as a person would say it of a label or an annotation
said(kind, expression) := sprintf("%s %q in %s", [kind, expression.key, _quoted(expression.values)]) if {
	expression.operator == "In"
}

said(kind, expression) := sprintf("%s %q not in %s", [kind, expression.key, _quoted(expression.values)]) if {
	expression.operator == "NotIn"
}

said(kind, expression) := sprintf("%s %q exists", [kind, expression.key]) if {
	expression.operator == "Exists"
}

said(kind, expression) := sprintf("%s %q does not exist", [kind, expression.key]) if {
	expression.operator == "DoesNotExist"
}

_quoted(values) := text if {
	text := json.marshal(values)
	count(text) <= _most_shown
} else := concat("", [substring(json.marshal(values), 0, _most_shown), "…"])

_most_shown := 120

# METADATA
# description: |
#   True when no map can meet all these valid expressions. Sound and complete, since there are always
#   more values than a selector names.
contradictory(list) if {
	some key in {expression.key | some expression in list}
	_impossible([expression | some expression in list; expression.key == key])
}

_impossible(list) if {
	some expression in list
	expression.operator == "DoesNotExist"
	some other in list
	other.operator in {"In", "Exists"}
}

_impossible(list) if {
	wanted := [{value | some value in expression.values} |
		some expression in list
		expression.operator == "In"
	]
	count(wanted) > 0
	unwanted := {value |
		some expression in list
		expression.operator == "NotIn"
		some value in expression.values
	}
	count(intersection({set | some set in wanted}) - unwanted) == 0
}
