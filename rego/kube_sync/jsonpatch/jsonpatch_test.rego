package kube_sync.jsonpatch_test

import data.kube_sync.jsonpatch

test_pointer_escapes_tilde_and_slash if {
	jsonpatch.pointer(["spec", "nodeSelector", "a/b~c"]) == "/spec/nodeSelector/a~1b~0c"
	jsonpatch.pointer(["~1"]) == "/~01"
}

test_pointer_counts_in_lists if {
	jsonpatch.pointer(["spec", "tolerations", 0, "key"]) == "/spec/tolerations/0/key"
}

test_pointer_to_the_whole_is_empty if {
	jsonpatch.pointer([]) == ""
}

test_pointer_keeps_percent_signs if {
	jsonpatch.pointer(["100%", "%v"]) == "/100%/%v"
}

test_operations_name_their_path if {
	jsonpatch.add(["a"], 1) == {"op": "add", "path": "/a", "value": 1}
	jsonpatch.remove(["a", "b/c"]) == {"op": "remove", "path": "/a/b~1c"}
}

test_map_that_is_there_is_added_to if {
	jsonpatch.put({"m": {"old": 1}}, ["m"], {"x/y": 2, "z": 3}) == [
		{"op": "add", "path": "/m/x~1y", "value": 2},
		{"op": "add", "path": "/m/z", "value": 3},
	]
}

test_map_that_is_not_there_is_added_whole if {
	every document in [{}, {"m": null}] {
		jsonpatch.put(document, ["m"], {"x": 2}) == [{"op": "add", "path": "/m", "value": {"x": 2}}]
	}
}

test_nothing_to_put_is_no_operation if {
	jsonpatch.put({}, ["m"], {}) == []
	jsonpatch.put({"m": {}}, ["m"], {}) == []
}

test_patch_applies if {
	operations := jsonpatch.put({"m": {"a/b": 1}}, ["m"], {"c~d": 2})
	json.patch({"m": {"a/b": 1}}, operations) == {"m": {"a/b": 1, "c~d": 2}}
}
