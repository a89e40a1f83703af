package kube_sync.scheduling.priorityclasses_test

import data.kube_sync.scheduling
import data.kube_sync.scheduling.world_test as world

test_listed_required_and_default_classes_are_allowed if {
	every spec in [
		{"allowed": {"priorityClasseNames": ["high"]}},
		{"allowed": {"priorityClassNames": ["high"]}},
		{"allowed": {"priorityClasseNames": []}},
		{"required": {"priorityClasseNames": ["high"]}},
		{"default": {"priorityClasseName": "high"}},
	] {
		world.admits(spec, {"priorityClassName": "high"})
	}
	world.denies({"allowed": {"priorityClasseNames": ["high"]}}, {"priorityClassName": "low"}, `spec.priorityClassName: "low" is not allowed`)
	world.denies({"default": {"priorityClasseName": "high"}}, {"priorityClassName": "low"}, `spec.priorityClassName: "low"`)
}

test_absent_list_allows_no_class_and_a_pod_needs_none if {
	world.denies({}, {"priorityClassName": "high"}, `spec.priorityClassName: "high" is not allowed`)
	every pod in [{}, {"priorityClassName": ""}, {"priorityClassName": null}] {
		world.admits({}, pod)
	}
}

test_required_class_has_to_be_there if {
	spec := {"required": {"priorityClasseNames": ["high"]}}
	world.denies(spec, {}, `spec.priorityClassName: "" is none of the required ["high"]`)
	world.denies(spec, {"priorityClassName": "low"}, "none of the required")
}

test_global_default_class_counts_as_none if {
	request := world.request("CREATE", {"priorityClassName": "usual", "priority": 5})
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	world.decided(specs, request, {"global_default_priority_class": "usual"}).allowed
	not world.decided(specs, request, {"global_default_priority_class": "other"}).allowed
	not world.decided(specs, request, {"global_default_priority_class": ""}).allowed
	classes := {"usual": {"globalDefault": true}, "high": {"globalDefault": false}}
	scheduling.decision.allowed with input as request
		with data.kubernetes as object.union(world.cluster(specs), {"priorityclasses": classes})
}

test_default_replaces_the_global_default_class if {
	request := world.request("CREATE", {"priorityClassName": "usual", "priority": 5})
	specs := {"p": {"allowed": {"schedulerNames": []}, "default": {"priorityClasseName": "high"}}}
	world.decided(specs, request, {"global_default_priority_class": "usual"}).patch == [
		{"op": "add", "path": "/spec/priorityClassName", "value": "high"},
		{"op": "remove", "path": "/spec/priority"},
	]
}

test_denial_says_whose_the_global_default_class_is if {
	request := world.request("CREATE", {"priorityClassName": "usual", "priority": 5})
	specs := {"p": {"allowed": {"schedulerNames": []}, "required": {"priorityClasseNames": ["high"]}}}
	[reason] := world.decided(specs, request, {"global_default_priority_class": "usual"}).reasons
	startswith(reason, `spec.priorityClassName: "usual" is none of the required ["high"] (it is the global default, which the API server filled in)`)
}
