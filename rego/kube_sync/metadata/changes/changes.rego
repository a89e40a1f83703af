# METADATA
# title: Changes of metadata
# description: The JSON Patch that gives an object labels and annotations, and nothing that it has already
package kube_sync.metadata.changes

import data.kube_sync.jsonpatch
import data.kube_sync.metadata.scope

# METADATA
# description: |
#   The operations that give the object these `labels` and `annotations`, sorted by path; none where it
#   has them, so that a second pass changes nothing.
patch(whole, wanted) := [operation |
	some name in ["annotations", "labels"]
	some operation in jsonpatch.put(
		_with_maps(whole),
		["metadata", name],
		_missing(scope.map_of(whole, name), wanted[name]),
	)
] if {
	is_object(object.get(whole, "metadata", null))
}

patch(whole, wanted) := jsonpatch.put(_without(whole), ["metadata"], metadata) if {
	not is_object(object.get(whole, "metadata", null))
	metadata := {name: values | some name, values in wanted; values != {}}
}

_missing(present, wanted) := {key: value |
	some key, value in wanted
	object.get(present, key, null) != value
}

# What is no map is replaced as if it were not there.
_with_maps(whole) := {"metadata": {name: map |
	some name in ["annotations", "labels"]
	map := whole.metadata[name]
	is_object(map)
}}

_without(whole) := object.remove(whole, ["metadata"])
