package kube_sync.scheduling.shapes_test

import data.kube_sync.scheduling.shapes

table := {
	`[]`: {"object"},
	`["names"]`: {"array", "filled", "null"},
	`["names",#]`: {"string", "filled"},
	`["nodeSelectors"]`: {"object"},
	`["nodeSelectors",*]`: {"array"},
	`["nodeSelectors",*,#]`: {"string"},
}

found(document) := shapes.problems("spec", document, table)

test_document_as_in_the_table_has_no_problem if {
	found({"names": ["a"], "nodeSelectors": {"any/key": ["b", ""]}}) == set()
	found({"names": null}) == set()
}

test_problems_name_the_path if {
	found([]) == {"spec: must be object, not array", "spec[0]: unknown field"} - {"spec[0]: unknown field"}
	found({"nams": []}) == {"spec.nams: unknown field"}
	found({"names": "a"}) == {"spec.names: must be array, not string"}
	found({"names": []}) == {"spec.names: must not be empty"}
	found({"names": ["", 1]}) == {"spec.names[0]: must not be empty", "spec.names[1]: must be string, not number"}
	found({"nodeSelectors": {"a.b/c": [null]}}) == {"spec.nodeSelectors[a.b/c][0]: must be string, not null"}
}

test_key_that_looks_like_a_sign_is_a_key if {
	every key in ["#", "*", "0", ",0", `names",0`, `"nodeSelectors","x"`] {
		count(found({key: "x"})) == 1
		count(found({"names": {key: "x"}})) == 2
	}
	found({"nodeSelectors": {`a","b`: ["c"]}}) == set()
}

test_field_without_a_root_begins_with_no_dot if {
	shapes.problems("", {"x": 1}, table) == {"x: unknown field"}
}
