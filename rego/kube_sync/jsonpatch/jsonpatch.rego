# METADATA
# title: JSON Patch
# description: |
#   Operations of a JSON Patch (RFC 6902) and the JSON Pointers (RFC 6901) in them. The root of a
#   patch is the object that it changes; maps that are not there yet are added whole, since an
#   operation below a path that does not exist fails the patch.
package kube_sync.jsonpatch

# METADATA
# description: |
#   The pointer to what lies below these segments, which are strings or, in a list, numbers:
#   `~` is written `~0` and `/` is written `~1` (RFC 6901, section 3).
pointer(segments) := concat("", [concat("", ["/", _escaped(segment)]) | some segment in segments])

# METADATA
# description: The operation that adds this value, or replaces what is there
add(segments, value) := {"op": "add", "path": pointer(segments), "value": value}

# METADATA
# description: The operation that removes what is there
remove(segments) := {"op": "remove", "path": pointer(segments)}

# METADATA
# description: |
#   The operations, by key, that give the map at these segments of a document these values: each in
#   its place where there is a map, and the whole map where there is none (or null).
put(document, segments, values) := [add(array.concat(segments, [key]), value) |
	some key, value in values
] if {
	is_object(object.get(document, segments, null))
}

put(document, segments, values) := [add(segments, values) |
	count(values) > 0
] if {
	not is_object(object.get(document, segments, null))
}

# Of the two, `~` first: or the one of `~1` would be escaped again.
_escaped(segment) := replace(replace(sprintf("%v", [segment]), "~", "~0"), "/", "~1")
