# METADATA
# title: Checks of parameters
# description: What each pack asks of the ConfigMap with its parameters
package placement.parameters

# METADATA
# description: What is wrong with a document that may have these keys, with values of these types
problems(document, _) := {"there are no parameters: apply parameters.yaml"} if is_null(document)

problems(document, _) := {sprintf("must be of type object, and is of type %s", [type_name(document)])} if {
	not is_null(document)
	not is_object(document)
}

problems(document, types) := unknown | mistyped if {
	is_object(document)
	unknown := {message |
		some key, _ in document
		not types[key]
		message := sprintf("%s is no parameter; there are %s", [key, concat(", ", sort(object.keys(types)))])
	}
	mistyped := {message |
		some key, value in document
		type_name(value) != types[key]
		message := sprintf("%s must be of type %s, and is of type %s", [key, types[key], type_name(value)])
	}
}

# METADATA
# description: The whole number that a text is, undefined for any other
whole_number(text) := to_number(text) if regex.match(`^(0|[1-9][0-9]*)$`, text)

# METADATA
# description: Whether a number is a whole one, and not below zero
is_whole(value) if {
	is_number(value)
	value >= 0
	floor(value) == value
}
