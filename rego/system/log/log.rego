# METADATA
# title: Decision log
# description: |
#   What OPA leaves out of its decision log, where one is configured (`decision_logs`): the data of
#   Secrets, wherever in a question they are, and whole answers that may hold some. OPA asks for
#   `data.system.log.mask` by itself.
package system.log

# METADATA
# description: What OPA removes from a logged decision (a path), or puts in its place (an object)
mask contains _pointer(array.concat(place, [field])) if {
	some place in _secrets
	some field in ["data", "stringData"]
	object.get(input.input, array.concat(place, [field]), null) != null
}

# It holds all of the object, as whoever applied it sent it. Its key has a slash in it, which the
# path of a mask cannot have, so the annotations beside it are put back.
mask contains {"op": "upsert", "path": _pointer(where), "value": object.remove(found, [_applied])} if {
	some place in _secrets
	where := array.concat(place, ["metadata", "annotations"])
	found := object.get(input.input, where, null)
	found[_applied]
}

# For the same reason, where a Secret lies below a key that no path can have, all goes.
mask contains "/input" if {
	some place in _secrets
	some part in place
	not regex.match(`^[A-Za-z0-9_.-]+$`, sprintf("%v", [part]))
}

mask contains "/result" if {
	_reads_replicated_secrets
}

_applied := "kubectl.kubernetes.io/last-applied-configuration"

_secrets contains place if {
	[place, value] := walk(input.input)
	value.kind == "Secret"
}

# The items of a list do not say what they are.
_secrets contains array.concat(place, ["items", i]) if {
	[place, value] := walk(input.input)
	value.kind == "SecretList"
	some i, _ in value.items
}

# An AdmissionReview says it beside the object.
_secrets contains array.concat(place, [which]) if {
	[place, value] := walk(input.input)
	value.kind.kind == "Secret"
	some which in ["object", "oldObject"]
	is_object(value[which])
}

_reads_replicated_secrets if {
	input.path in {"", "kubernetes", "kubernetes/secrets"}
}

_reads_replicated_secrets if {
	startswith(input.path, "kubernetes/secrets/")
}

_pointer(place) := concat("/", array.concat(["", "input"], [sprintf("%v", [part]) | some part in place]))
