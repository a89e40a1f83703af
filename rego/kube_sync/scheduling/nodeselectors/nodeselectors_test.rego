package kube_sync.scheduling.nodeselectors_test

import data.kube_sync.scheduling.world_test as world

test_listed_required_and_default_values_are_allowed if {
	every spec in [
		{"allowed": {"nodeSelectors": {"disk": ["ssd", "hdd"]}}},
		{"required": {"nodeSelectors": {"disk": ["ssd", "hdd"]}}},
		{"default": {"nodeSelector": {"disk": "ssd"}}},
	] {
		world.admits(spec, {"nodeSelector": {"disk": "ssd"}})
		world.denies(spec, {"nodeSelector": {"disk": "tape"}}, `spec.nodeSelector[disk]: "tape" is not allowed`)
		world.denies(spec, {"nodeSelector": {"disk": "ssd", "gpu": "1"}}, `spec.nodeSelector[gpu]: "1" is not allowed`)
	}
}

test_empty_map_allows_all_keys_and_empty_list_all_values if {
	world.admits({"allowed": {"nodeSelectors": {}}}, {"nodeSelector": {"any": "thing", "other": ""}})
	world.admits({"allowed": {"nodeSelectors": {"disk": []}}}, {"nodeSelector": {"disk": ""}})
	world.denies({"allowed": {"nodeSelectors": {"disk": []}}}, {"nodeSelector": {"gpu": "1"}}, "spec.nodeSelector[gpu]")
	world.denies({}, {"nodeSelector": {"disk": "ssd"}}, "spec.nodeSelector[disk]")
}

test_pod_without_a_selector_needs_no_permission if {
	every pod in [{}, {"nodeSelector": null}, {"nodeSelector": {}}] {
		world.admits({}, pod)
		world.admits({"allowed": {"nodeSelectors": {"disk": ["ssd"]}}}, pod)
	}
}

test_every_required_key_has_to_be_there if {
	spec := {"required": {"nodeSelectors": {"arch": ["amd64"], "os": []}}}
	world.admits(spec, {"nodeSelector": {"arch": "amd64", "os": "whichever"}})
	world.denies(spec, {"nodeSelector": {"arch": "amd64"}}, "spec.nodeSelector[os]: null is not what is required, any value")
	world.denies(spec, {"nodeSelector": {"os": "x"}}, `spec.nodeSelector[arch]: null is not what is required, one of ["amd64"]`)
}

test_nothing_required_allows_nothing if {
	world.admits({"required": {"nodeSelectors": {}}}, {})
	world.denies({"required": {"nodeSelectors": {}}}, {"nodeSelector": {"a": "b"}}, "spec.nodeSelector[a]")
}
