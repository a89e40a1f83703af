package kube_sync.scheduling.defaults_test

import data.kube_sync.scheduling.world_test as world

full := {
	"allowed": {"tolerations": [], "nodeSelectors": {}, "affinities": {}, "priorityClasseNames": []},
	"default": {
		"schedulerName": "green",
		"priorityClasseName": "high",
		"nodeSelector": {"example.com/arch": "amd64", "os": "linux"},
		"tolerations": [{"key": "gpu", "values": ["yes", "no"], "effect": "NoSchedule"}, {"key": "cpu", "operator": "Exists", "value": null}],
		"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}, "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
	},
}

tolerations := [
	{"key": "gpu", "value": "yes", "effect": "NoSchedule"},
	{"key": "gpu", "value": "no", "effect": "NoSchedule"},
	{"key": "cpu", "operator": "Exists"},
]

test_pod_that_says_nothing_is_given_every_default if {
	every pod in [
		{},
		{"schedulerName": "", "priorityClassName": "", "nodeSelector": {}, "tolerations": [], "affinity": {}},
		{"schedulerName": null, "priorityClassName": null, "nodeSelector": null, "tolerations": null, "affinity": null},
	] {
		world.patched(full, pod) == {
			"schedulerName": "green",
			"priorityClassName": "high",
			"nodeSelector": full["default"].nodeSelector,
			"tolerations": tolerations,
			"affinity": full["default"].affinity,
		}
	}
}

test_pod_keeps_what_it_says if {
	pod := {
		"schedulerName": "green",
		"priorityClassName": "low",
		"nodeSelector": {"os": "windows"},
		"tolerations": [{"operator": "Exists"}],
		"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
	}
	world.patched(full, pod) == object.union(pod, {
		"nodeSelector": {"example.com/arch": "amd64", "os": "windows"},
		"affinity": {
			"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
			"podAntiAffinity": full["default"].affinity.podAntiAffinity,
		},
	})
}

test_kind_of_affinity_that_is_empty_is_not_said if {
	made := world.patched(full, {"affinity": {"podAffinity": {}, "nodeAffinity": null}})
	made.affinity == object.union(full["default"].affinity, {"nodeAffinity": null})
}

test_injected_tolerations_keep_no_default_away if {
	injected := {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
	world.patched(full, {"tolerations": [injected]}).tolerations == array.concat([injected], tolerations)
}

test_resolved_priority_goes_with_the_class_that_it_was_of if {
	made := world.patched(full, {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
	made.priorityClassName == "high"
	object.keys(made) & {"priority", "preemptionPolicy"} == set()
	kept := world.patched(full, {"priorityClassName": "low", "priority": 5})
	kept.priority == 5
}

test_keys_are_escaped_in_the_patch if {
	answer := world.decision({"p": object.union(full, {"required": {"schedulerNames": ["green"]}})}, {"nodeSelector": {"os": "linux"}})
	{"op": "add", "path": "/spec/nodeSelector/example.com~1arch", "value": "amd64"} in answer.patch
}

test_denied_pod_is_given_nothing if {
	spec := object.union(full, {"required": {"nodeSelectors": {"disk": ["ssd"]}}})
	world.denies(spec, {}, "spec.nodeSelector[disk]")
}

test_default_that_is_not_as_required_is_denied if {
	world.denies(
		{"required": {"schedulerNames": ["green"]}, "default": {"schedulerName": "red"}},
		{},
		`spec.schedulerName: "red" is none of the required`,
	)
}

test_update_is_checked_and_given_nothing if {
	specs := {"p": object.union(full, {"required": {"nodeSelectors": {"os": ["linux"]}, "schedulerNames": ["default-scheduler"]}})}
	world.decided(specs, world.request("UPDATE", {"nodeSelector": {"os": "linux"}}), {}) == {
		"allowed": true,
		"patch": [],
		"policies": ["p"],
		"reasons": [],
	}
	world.decided(specs, world.request("UPDATE", {}), {}).allowed == false
}

# Of the other nodes, none could ever start it.
test_pod_that_is_tied_to_one_node_gets_nothing_that_nodes_are_chosen_by if {
	hard := "requiredDuringSchedulingIgnoredDuringExecution"
	spec := {
		"allowed": {"nodeNames": [], "affinities": {}, "nodeSelectors": {}},
		"default": object.union(full["default"], {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]}}}}),
	}
	tie := {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
	every pod in [{"nodeName": "node-1"}, {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchFields": [tie]}]}}}}] {
		made := world.patched(spec, pod)
		object.get(made, "nodeSelector", {}) == {}
		object.get(made, ["affinity", "nodeAffinity"], {}) == object.get(pod, ["affinity", "nodeAffinity"], {})
		made.priorityClassName == "high"
		made.affinity.podAffinity
	}
	either := [{"matchFields": [tie]}, {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}]
	world.patched(spec, {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": either}}}}).nodeSelector == full["default"].nodeSelector
}

test_patched_pod_needs_no_further_patch if {
	once := world.patched(full, {})
	world.decision({"p": object.union(full, {"required": {"schedulerNames": ["green"]}})}, once).patch == []
}
