# METADATA
# title: Syntax of labels and annotations
# description: |
#   What the API server takes as the key or value of a label, and as the key of an annotation
#   (apimachinery, pkg/util/validation). Each is a set of messages, empty where all is well.
package kube_sync.metadata.syntax

_name := `^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$`

_domain := `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`

# METADATA
# description: What is wrong with the key of a label, or with that of an annotation in lower case
key_faults(key) := set() if _is_key(key)

key_faults(key) := {sprintf("%s is no valid key", [_shown(key)])} if not _is_key(key)

# METADATA
# description: What is wrong with the key of this kind of metadata; annotations may have upper case
key_faults_of("label", key) := key_faults(key)

key_faults_of("annotation", key) := key_faults(key) if not is_string(key)

key_faults_of("annotation", key) := key_faults(lower(key)) if is_string(key)

# METADATA
# description: What is wrong with a value; an annotation takes any string
value_faults_of(kind, value) := {sprintf("%s is no string", [_shown(value)])} if {
	not is_string(value)
	kind in {"label", "annotation"}
}

value_faults_of("label", value) := set() if _is_label(value)

value_faults_of("label", value) := {sprintf("%s is no valid value of a label", [_shown(value)])} if {
	is_string(value)
	not _is_label(value)
}

value_faults_of("annotation", value) := set() if is_string(value)

_is_key(key) if {
	count(split(key, "/")) == 1
	_is_name(key)
}

_is_key(key) if {
	[prefix, name] := split(key, "/")
	count(prefix) <= 253
	regex.match(_domain, prefix)
	_is_name(name)
}

_is_name(name) if {
	count(name) <= 63
	regex.match(_name, name)
}

_is_label("")

_is_label(value) if _is_name(value)

_shown(value) := substring(json.marshal(value), 0, 80)
