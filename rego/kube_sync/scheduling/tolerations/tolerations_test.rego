package kube_sync.scheduling.tolerations_test

import data.kube_sync.scheduling.world_test as world

fine := {"keys": ["gpu"], "operators": ["Equal"], "values": ["yes"], "effects": ["NoSchedule"]}

any := {"keys": [], "operators": [], "values": [], "effects": []}

equal := {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}

exists := {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}

fits(pattern, toleration) if world.admits({"allowed": {"tolerations": [pattern]}}, {"tolerations": [toleration]})

misfits(pattern, toleration) if {
	world.denies({"allowed": {"tolerations": [pattern]}}, {"tolerations": [toleration]}, "spec.tolerations[0]: ")
}

test_every_part_has_to_be_listed if {
	fits(fine, equal)
	every change in [{"key": "cpu"}, {"operator": "Exists"}, {"value": "no"}, {"effect": "NoExecute"}] {
		misfits(fine, object.union(equal, change))
	}
}

test_absent_operator_is_equal if {
	fits(fine, object.remove(equal, ["operator"]))
	fits(fine, object.union(equal, {"operator": ""}))
	fits(fine, object.union(equal, {"operator": null}))
}

test_absent_effect_means_all_effects if {
	misfits(fine, object.remove(equal, ["effect"]))
	misfits(fine, object.union(equal, {"effect": ""}))
	fits(object.union(fine, {"effects": []}), object.remove(equal, ["effect"]))
}

test_existence_without_a_key_means_all_keys if {
	pattern := {"keys": ["gpu"], "operators": [], "values": [], "effects": []}
	misfits(pattern, {"operator": "Exists"})
	fits(any, {"operator": "Exists"})
}

test_existence_means_all_values if {
	misfits(object.union(fine, {"operators": []}), exists)
	fits(object.union(fine, {"operators": [], "values": []}), exists)
	fits(object.remove(object.union(fine, {"operators": ["Exists"]}), ["values"]), exists)
}

test_absent_list_allows_nothing_that_is_specified if {
	misfits(object.remove(fine, ["values"]), equal)
	fits(object.remove(fine, ["values"]), object.remove(equal, ["value"]))
	misfits(object.remove(fine, ["operators"]), equal)
	fits(object.remove(fine, ["operators"]), object.remove(equal, ["operator"]))
	misfits(object.remove(fine, ["keys"]), equal)
	misfits(object.remove(fine, ["effects"]), equal)
	misfits({}, {"operator": "Exists"})
}

test_absent_list_allows_none_and_an_empty_one_all if {
	world.admits({"allowed": {"tolerations": []}}, {"tolerations": [{"operator": "Exists"}, equal]})
	world.denies({}, {"tolerations": [equal]}, "spec.tolerations[0]")
	every pod in [{}, {"tolerations": []}, {"tolerations": null}] {
		world.admits({}, pod)
	}
}

test_one_good_toleration_licenses_no_other if {
	world.denies({"allowed": {"tolerations": [fine]}}, {"tolerations": [equal, exists]}, "spec.tolerations[1]")
}

test_parts_of_two_patterns_are_not_combined if {
	other := {"keys": ["cpu"], "operators": ["Exists"], "effects": ["NoExecute"]}
	world.denies({"allowed": {"tolerations": [fine, other]}}, {"tolerations": [exists]}, "spec.tolerations[0]")
}

test_what_the_api_server_adds_needs_no_permission if {
	injected := [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} |
		some key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
	]
	world.admits({}, {"tolerations": injected})
	every change in [{"tolerationSeconds": 301}, {"effect": "NoSchedule"}, {"key": "other"}] {
		world.denies({}, {"tolerations": [object.union(injected[0], change)]}, "spec.tolerations[0]")
	}
	world.denies({}, {"tolerations": [object.remove(injected[0], ["tolerationSeconds"])]}, "spec.tolerations[0]")
	request := world.request("CREATE", {"tolerations": [object.union(injected[0], {"tolerationSeconds": 60})]})
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	world.decided(specs, request, {"injected_toleration_seconds": 60}).allowed
}

daemonset := [
	{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
	{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
]

test_what_the_daemonset_controller_adds_needs_no_permission_of_its_own_pods if {
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	request := world.request("CREATE", {"tolerations": daemonset})
	controller := {"userInfo": {"username": "system:serviceaccount:kube-system:daemon-set-controller"}}
	world.decided(specs, object.union(request, controller), {}).allowed
	not world.decided(specs, object.union(request, controller), {"trust_daemonset_controller": false}).allowed
	not world.decided(specs, request, {}).allowed

	# At creation, owners can be claimed by anybody.
	owned := {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}}
	not world.decided(specs, object.union(request, {"object": owned, "oldObject": owned}), {}).allowed
	update := object.union(request, {"operation": "UPDATE", "oldObject": object.union(request.object, {"metadata": {"labels": {"a": "b"}}})})
	world.decided(specs, update, {}).allowed
	not world.decided(specs, object.union(request, {"operation": "UPDATE", "oldObject": owned}), {}).allowed
	not world.decided(specs, update, {"trust_daemonset_controller": false}).allowed
}

test_default_tolerations_are_allowed_as_they_are if {
	spec := {"default": {"tolerations": [{"key": "gpu", "values": ["yes", "no"], "effect": "NoSchedule"}]}}
	world.admits(spec, {"tolerations": [equal]})
	world.denies(spec, {"tolerations": [object.union(equal, {"value": "other"})]}, "spec.tolerations[0]")
	world.denies(spec, {"tolerations": [exists]}, "spec.tolerations[0]")
}
