# METADATA
# title: Shapes
# description: |
#   Whether a document has the fields that a table knows and no others. A table's keys are paths
#   written as JSON, in which `#` stands for any place in a list and `*` for any key of a map; its
#   values are sets of the types that may be there, with "filled" where it must not be empty.
#
#   Rego has no recursion, and a walk over paths needs none.
package kube_sync.scheduling.shapes

# METADATA
# description: What is not as the table has it, each by its path below the root's name
problems(root, document, table) := {message |
	walk(document, [path, value])
	not _fits(table, path, value)
	message := concat(": ", [trim_left(concat("", [root, field(path)]), "."), _complaint(table, path, value)])
}

# METADATA
# description: A path as the Kubernetes API server writes it, with a dot at its beginning
field(path) := concat("", [_segment(part, _is_free(path, place)) | some place, part in path])

_fits(table, path, value) if _holds(table[_general(path)], value)

_holds(kinds, value) if {
	type_name(value) in kinds
	not "filled" in kinds
}

_holds(kinds, value) if {
	type_name(value) in kinds
	count(value) > 0
}

_holds(kinds, null) if "null" in kinds

_complaint(table, path, _) := "unknown field" if not table[_general(path)]

_complaint(table, path, value) := sprintf("must be %s, not %s", [
	concat(" or ", sort(table[_general(path)] - {"filled", "null"})),
	type_name(value),
]) if {
	not type_name(value) in table[_general(path)]
}

_complaint(table, path, value) := "must not be empty" if type_name(value) in table[_general(path)]

# A quoted key cannot be mistaken for a sign: what is replaced by one is not quoted any more.
_general(path) := regex.replace(
	regex.replace(json.marshal(path), `("nodeSelectors?"|"matchLabels"),"(?:[^"\\]|\\.)*"`, `$1,*`),
	`([\[,])[0-9]+`,
	`$1#`,
)

_segment(part, _) := sprintf("[%d]", [part]) if is_number(part)

_segment(part, true) := sprintf("[%s]", [part]) if is_string(part)

_segment(part, false) := sprintf(".%s", [part]) if is_string(part)

default _is_free(_, _) := false

_is_free(path, place) if path[place - 1] in {"nodeSelector", "nodeSelectors", "matchLabels"}
