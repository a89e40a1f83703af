package kube_sync.metadata.scope_test

import data.kube_sync.metadata.scope

test_kind_is_that_of_the_request_or_else_of_the_object if {
	scope.is_a({"kind": {"kind": "Pod"}}, "", "Pod")
	scope.is_a({"object": {"apiVersion": "v1", "kind": "Pod"}}, "", "Pod")
	scope.is_a({"object": {"apiVersion": "apps/v1", "kind": "Deployment"}}, "apps", "Deployment")
	not scope.is_a({"object": {"apiVersion": "apps/v1", "kind": "Pod"}}, "", "Pod")
	not scope.is_a({"kind": {"group": "apps", "kind": "Pod"}, "object": {"kind": "Pod"}}, "", "Pod")
	not scope.is_a({"object": {"apiVersion": 1, "kind": "Pod"}}, "", "Pod")
}

test_namespace_is_that_of_the_request_or_else_of_the_object if {
	scope.namespace_of({"namespace": "a", "object": {"metadata": {"namespace": "b"}}}) == "a"
	scope.namespace_of({"object": {"metadata": {"namespace": "b"}}}) == "b"
	scope.namespace_of({"namespace": "", "object": {"metadata": {"namespace": "b"}}}) == "b"
	not scope.namespace_of({"namespace": "", "object": {"metadata": {"namespace": ""}}})
	not scope.namespace_of({"namespace": 1})
}

test_namespace_itself_is_in_none if {
	not scope.namespace_of({"namespace": "a", "kind": {"group": "", "kind": "Namespace"}})
	scope.namespace_of({"namespace": "a", "kind": {"group": "example.com", "kind": "Namespace"}}) == "a"
}

test_map_of_another_shape_is_empty if {
	every whole in [{}, {"metadata": null}, {"metadata": {"labels": null}}, {"metadata": {"labels": ["x"]}}] {
		scope.map_of(whole, "labels") == {}
	}
	scope.map_of({"metadata": {"labels": {"a": 1}}}, "labels") == {"a": 1}
}

test_object_of_another_shape_is_empty if {
	scope.object_of({"object": "x"}) == {}
	scope.object_of({}) == {}
}
