package system.log_test

import data.system.log

secret := {
	"kind": "Secret",
	"metadata": {
		"name": "db",
		"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "shop"},
	},
	"data": {"password": "c2VjcmV0"},
	"stringData": {"password": "secret"},
}

fields(place) := {
	sprintf("/input%s/data", [place]),
	sprintf("/input%s/stringData", [place]),
	{
		"op": "upsert",
		"path": sprintf("/input%s/metadata/annotations", [place]),
		"value": {"team": "shop"},
	},
}

masked(asked) := found if {
	found := log.mask with input as {"path": "io/k8s/federation/admission", "input": asked}
}

test_secret_as_the_question_is_masked if {
	masked(secret) == fields("")
}

test_secret_of_a_review_is_masked_new_and_old if {
	review := {"request": {"kind": {"kind": "Secret"}, "object": secret, "oldObject": secret}}
	masked(review) == fields("/request/object") | fields("/request/oldObject")
}

test_secret_that_does_not_say_its_kind_is_known_by_the_review if {
	review := {"request": {"kind": {"kind": "Secret"}, "object": {"data": {"a": "b"}}, "oldObject": null}}
	masked(review) == {"/input/request/object/data"}
}

test_secret_among_others_in_a_list_is_masked if {
	masked({"items": [{"kind": "ReplicaSet", "data": {}}, secret]}) == fields("/items/1")
	masked({"kind": "SecretList", "items": [{"data": {"a": "b"}}]}) == {"/input/items/0/data"}
}

test_other_kinds_are_logged_whole if {
	masked({"kind": "ConfigMap", "data": {"a": "b"}}) == set()
	masked({"kind": "ReplicaSet", "metadata": {"annotations": secret.metadata.annotations}}) == set()
}

test_question_of_any_shape_is_survived if {
	every asked in {null, 1, "Secret", [], ["Secret"], {"kind": ["Secret"]}, {"kind": "Secret", "metadata": 1}} {
		masked(asked) == set()
	}
	log.mask == set() with input as {"path": "kubernetes/clusters"}
}

test_answer_that_may_hold_replicated_secrets_is_left_out if {
	every path in {"", "kubernetes", "kubernetes/secrets", "kubernetes/secrets/shop/db"} {
		log.mask == {"/result"} with input as {"path": path}
	}
	every path in {"kubernetes/secretsquirrel", "kubernetes/clusters", "io/k8s/federation/admission"} {
		log.mask == set() with input as {"path": path}
	}
}

test_secret_below_a_key_that_no_path_can_have_takes_all_with_it if {
	"/input" in masked({"a/b": secret})
	"/input" in masked({"a b": [secret]})
	not "/input" in masked({"a.b": [secret]})
}
