package kube_sync.scheduling_test

import data.kube_sync.scheduling
import data.kube_sync.scheduling.world_test as world

restricted := {"restricted": {"allowed": {"schedulerNames": ["default-scheduler"]}}}

nothing_to_say := {"allowed": true, "reasons": [], "patch": [], "policies": []}

changed(change) := world.decided({}, object.union(world.request("CREATE", {}), change), {})

test_allowed_pod_is_told_its_policies if {
	world.decision(restricted, {}) == {"allowed": true, "reasons": [], "patch": [], "policies": ["restricted"]}
}

test_without_any_usable_policy_every_pod_is_denied if {
	world.decision({}, {}) == {
		"allowed": false,
		"reasons": ["no SchedulingPolicy may be used by the service account default of namespace team-a"],
		"patch": [],
		"policies": [],
	}
	scheduling.decision.allowed == false with input as world.request("CREATE", {})
}

test_other_kinds_and_operations_pass if {
	changed({"kind": {"group": "apps", "kind": "Deployment"}}) == nothing_to_say
	changed({"kind": {"group": "metrics.k8s.io", "kind": "Pod"}}) == nothing_to_say
	changed({"kind": {"group": "", "kind": "Binding"}, "subResource": "binding"}) == nothing_to_say
	every operation in ["DELETE", "CONNECT"] {
		changed({"operation": operation, "object": null}) == nothing_to_say
	}
}

test_subresources_pass if {
	every subresource in ["binding", "status", "ephemeralcontainers", "resize", "eviction"] {
		changed({"operation": "UPDATE", "subResource": subresource}) == nothing_to_say
	}
	changed({"subResource": ""}).allowed == false
	changed({"subResource": null}).allowed == false
}

test_requests_that_cannot_be_read_are_denied if {
	every change in [{"operation": "PATCH"}, {"operation": null}, {"object": null}, {"kind": {"kind": 5}}, {"kind": {"kind": ""}}, {"kind": {"kind": "Pod", "group": 5}}] {
		answer := changed(change)
		answer.allowed == false
		count(answer.reasons) > 0
	}
	every request in [{}, [], null, "pod", 5] {
		scheduling.decision.allowed == false with input as request
	}
}

test_kind_of_the_object_serves_where_the_request_has_none if {
	request := object.remove(world.request("CREATE", {}), ["kind"])
	world.decided(restricted, request, {}).allowed
	not world.decided({}, request, {}).allowed
	deployment := {"operation": "CREATE", "object": {"apiVersion": "apps/v1", "kind": "Deployment"}}
	scheduling.decision == nothing_to_say with input as deployment
}

test_group_of_a_kind_may_be_null if {
	world.decided(restricted, object.union(world.request("CREATE", {}), {"kind": {"group": null}}), {}).policies == ["restricted"]
}

owner := {"metadata": {"ownerReferences": [{"kind": "Job"}], "finalizers": ["a"]}}

test_update_of_owners_and_finalizers_passes if {
	old := world.request("UPDATE", {"schedulerName": "red"}).object
	update := world.request("UPDATE", {"schedulerName": "red"})
	world.decided(restricted, object.union(update, {"object": owner, "oldObject": old}), {}) == nothing_to_say
	world.decided(restricted, object.union(update, {"oldObject": old}), {}).allowed == false
	relabelled := {"metadata": {"labels": {"new": "label"}}}
	world.decided(restricted, object.union(update, {"object": relabelled, "oldObject": old}), {}).allowed == false
	world.decided(restricted, object.union(update, {"object": owner, "oldObject": null}), {}).allowed == false
}

storing(policy) := answer if {
	answer := scheduling.decision with input as {
		"kind": {"group": "policy.kube-sync.io", "version": "v1alpha1", "kind": "SchedulingPolicy"},
		"operation": "CREATE",
		"object": policy,
	}
}

test_policy_is_judged_by_what_it_says if {
	storing({"spec": {"allowed": {"schedulerNames": []}}}) == nothing_to_say
	storing({"spec": {"required": {"tolerations": []}}}) == {
		"allowed": false,
		"reasons": ["spec.required.tolerations: unknown field"],
		"patch": [],
		"policies": [],
	}
	storing(null).allowed == false
}

test_invalid_policy_allows_nothing_and_is_named if {
	specs := object.union(restricted, {"bad": {"allowed": {"schedulerNames": []}, "required": {"priorityClasseNames": []}}})
	answer := world.decision(specs, {"schedulerName": "red"})
	answer.policies == ["restricted"]
	answer.reasons == [`spec.schedulerName: "red" is not allowed (policies considered: restricted; ignored as invalid: bad)`]
	alone := world.decision(object.filter(specs, ["bad"]), {})
	alone.reasons == ["no SchedulingPolicy may be used by the service account default of namespace team-a; ignored as invalid: bad"]
}

test_reasons_are_in_order_and_each_is_there if {
	reasons := world.decision(restricted, {"schedulerName": "red", "priorityClassName": "high", "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}).reasons
	count(reasons) == 4
	reasons == sort(reasons)
}

# Whatever goes wrong in a rule must not read as permission.
test_rule_that_cannot_tell_denies if {
	answer := scheduling.decision with input as world.request("CREATE", {})
		with data.kubernetes as world.cluster(restricted)
		with data.kube_sync.scheduling.merge.judging as [{}, "unheard of"]
		with data.kube_sync.scheduling.pods.asked as {}
	answer == {"allowed": false, "reasons": ["the request cannot be judged"], "patch": [], "policies": []}
}
