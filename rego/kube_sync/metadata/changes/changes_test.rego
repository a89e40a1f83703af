package kube_sync.metadata.changes_test

import data.kube_sync.metadata.changes

wanted := {"labels": {"a": "1"}, "annotations": {"b/c": "2"}}

test_only_what_differs_is_set if {
	changes.patch({"metadata": {"labels": {"a": "1"}, "annotations": {"b/c": "x"}}}, wanted) == [{
		"op": "add",
		"path": "/metadata/annotations/b~1c",
		"value": "2",
	}]
}

test_maps_that_are_none_are_set_whole if {
	every metadata in [{}, {"labels": null, "annotations": []}] {
		changes.patch({"metadata": metadata}, wanted) == [
			{"op": "add", "path": "/metadata/annotations", "value": {"b/c": "2"}},
			{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}},
		]
	}
}

test_metadata_that_is_none_is_set_whole if {
	every whole in [{}, {"metadata": null}, {"metadata": "x"}] {
		changes.patch(whole, wanted) == [{"op": "add", "path": "/metadata", "value": wanted}]
		changes.patch(whole, {"labels": {}, "annotations": {}}) == []
	}
	changes.patch({}, {"labels": {"a": "1"}, "annotations": {}})[0].value == {"labels": {"a": "1"}}
}
