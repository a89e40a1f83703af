package kube_sync.metadata_test

import data.kube_sync.metadata
import data.kube_sync.qos

request := {
	"operation": "CREATE",
	"namespace": "shop",
	"kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
	"object": {"metadata": {"name": "c", "labels": {"app": "web"}}},
}

policy(rules) := {"spec": {"rules": rules}}

on(labels, action) := {"policyPredicate": {"labelSelector": {"matchLabels": labels}}, "policyAction": action}

web := {"app": "web"}

decide(given, policies) := answer if {
	answer := metadata.decision with input as given with data.kubernetes.metadatapolicies as {"shop": policies}
}

let_through := {"allowed": true, "reasons": [], "patch": [], "policies": []}

test_every_matching_rule_is_applied if {
	answer := decide(request, {
		"b": policy([on(web, {"updatedAnnotations": {"x/y": "1"}}), on({"app": "db"}, {"updatedLabels": {"no": "1"}})]),
		"a": policy([on(web, {"reject": false, "updatedLabels": {"tier": "front"}})]),
	})
	answer == {
		"allowed": true,
		"reasons": [
			`metadata policy "a", rule 0: sets label "tier" to "front" on objects with label "app" in ["web"]`,
			`metadata policy "b", rule 0: sets annotation "x/y" to "1" on objects with label "app" in ["web"]`,
		],
		"patch": [
			{"op": "add", "path": "/metadata/annotations", "value": {"x/y": "1"}},
			{"op": "add", "path": "/metadata/labels/tier", "value": "front"},
		],
		"policies": ["a", "b"],
	}
}

test_one_rejection_is_enough_and_nothing_is_changed if {
	answer := decide(request, {
		"a": policy([on(web, {"updatedLabels": {"tier": "front"}})]),
		"b": policy([on({}, {}), on(web, {"reject": true, "updatedLabels": {"tier": "x"}})]),
	})
	answer == {
		"allowed": false,
		"reasons": [`metadata policy "b", rule 1: rejects objects with label "app" in ["web"]`],
		"patch": [],
		"policies": ["b"],
	}
}

test_predicates_see_the_object_as_it_came_in if {
	answer := decide(request, {"a": policy([
		on(web, {"updatedLabels": {"tier": "front"}}),
		on({"tier": "front"}, {"reject": true}),
	])})
	answer.allowed
}

test_last_policy_by_name_has_the_last_word if {
	answer := decide(request, {
		"p-10": policy([on(web, {"updatedLabels": {"tier": "10"}})]),
		"p-2": policy([on(web, {"updatedLabels": {"tier": "2"}})]),
	})
	answer.patch == [{"op": "add", "path": "/metadata/labels/tier", "value": "2"}]
	contains(answer.reasons[0], `conflict: metadata policy "p-2", rule 0 has the last word`)
	not contains(answer.reasons[1], "conflict")
}

test_rule_with_a_fault_is_not_applied_beside_others_that_are if {
	answer := decide(request, {"a": policy([
		on(web, {"reject": "yes"}),
		{"policyPredicate": {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}}, "policyAction": {"reject": true}},
		{"policyPredicate": {"labelSelecter": {}}, "policyAction": {"reject": true}},
		{"policyAction": {"reject": true}},
		on(web, {"updatedLabels": {"tier": "front"}}),
	])})
	answer.allowed
	answer.patch == [{"op": "add", "path": "/metadata/labels/tier", "value": "front"}]
}

test_policies_of_other_namespaces_do_not_apply if {
	answer := metadata.decision with input as request
		with data.kubernetes.metadatapolicies as {"depot": {"a": policy([on({}, {"reject": true})])}}
	answer == let_through
}

rejecting := {"a": policy([on({}, {"reject": true})])}

test_objects_of_the_cluster_and_what_is_not_written_are_let_through if {
	every change in [
		{"kind": {"group": "", "version": "v1", "kind": "Namespace"}},
		{"operation": "DELETE"},
		{"operation": "CONNECT"},
		{"subResource": "status"},
		{"namespace": ""},
	] {
		decide(object.union(request, change), rejecting) == let_through
	}
	decide(request, rejecting).allowed == false
	decide(object.union(request, {"operation": "UPDATE"}), rejecting).allowed == false
}

test_what_is_being_deleted_is_let_go if {
	deleted := object.union(request.object, {"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}})
	decide(object.union(request, {"operation": "UPDATE", "oldObject": deleted}), rejecting) == let_through
	finalized := object.union(deleted, {"metadata": {"finalizers": ["x/y"], "annotations": {}}})
	decide(object.union(request, {"operation": "UPDATE", "oldObject": finalized}), rejecting) == let_through

	# Its author may claim it, the API server has not said so.
	decide(object.union(request, {"operation": "UPDATE", "object": deleted}), rejecting).allowed == false
}

test_what_is_being_deleted_is_judged_where_more_than_a_finalizer_changes if {
	deleted := object.union(request.object, {"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}})
	leaving := object.union(request, {"operation": "UPDATE", "oldObject": deleted})
	every change in [
		{"metadata": {"labels": {"more": "1"}}},
		{"metadata": {"annotations": {"more": "1"}}},
		{"spec": {"replicas": 1}},
	] {
		decide(object.union(leaving, {"object": change}), rejecting).allowed == false
	}
}

of_policy(spec) := {
	"operation": "UPDATE",
	"namespace": "shop",
	"kind": {"group": "policy.kube-sync.io", "version": "v1alpha1", "kind": "MetadataPolicy"},
	"object": {"metadata": {"name": "new", "namespace": "shop"}, "spec": spec},
}

test_metadata_policy_is_judged_by_validation_alone if {
	decide(of_policy({"rules": [on(web, {"reject": true})]}), rejecting) == let_through
	answer := decide(of_policy({"rules": [on(web, {"reject": 1})]}), {})
	answer == {
		"allowed": false,
		"reasons": ["spec.rules[0].policyAction.reject: must be true or false"],
		"patch": [],
		"policies": [],
	}
	gone := {"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}, "spec": 1}
	deleting := object.union(of_policy(1), {"oldObject": gone})
	decide(deleting, {}) == let_through
	decide(object.union(deleting, {"object": {"spec": 2}}), {}).allowed == false
	decide(object.union(of_policy(1), {"subResource": "status"}), {}) == let_through
}

test_no_request_is_refused if {
	every given in [null, 1, "x", []] {
		answer := metadata.decision with input as given
		answer.reasons == ["there is no request"]
		refused := metadata.pipeline with input as given
		refused.allowed == false
	}
}

pod := object.union(request, {
	"kind": {"group": "", "version": "v1", "kind": "Pod"},
	"object": {"spec": {"containers": [{"name": "c"}]}},
})

chosen(class, scheduler) := policy([{
	"policyPredicate": {"annotationSelector": {"matchLabels": {qos.annotation: class}}},
	"policyAction": {"updatedAnnotations": {"scheduler.alpha.kubernetes.io/name": scheduler}},
}])

test_policies_see_the_quality_of_service if {
	policies := {"a": chosen("Guaranteed", "exact"), "b": chosen("BestEffort", "batch")}
	answer := metadata.pipeline with input as pod with data.kubernetes.metadatapolicies as {"shop": policies}
	answer.policies == ["b"]
	answer.reasons[0] == sprintf(`quality of service: annotation %q is "BestEffort"`, [qos.annotation])
	answer.patch == [{"op": "add", "path": "/metadata/annotations", "value": {
		qos.annotation: "BestEffort",
		"scheduler.alpha.kubernetes.io/name": "batch",
	}}]
	patched := json.patch(pod.object, answer.patch)
	again := metadata.pipeline with input as object.union(pod, {"object": patched})
		with data.kubernetes.metadatapolicies as {"shop": policies}
	again.patch == []
	again.allowed
}

test_pipeline_rejects_without_a_patch if {
	answer := metadata.pipeline with input as pod with data.kubernetes.metadatapolicies as {"shop": rejecting}
	answer.allowed == false
	answer.patch == []
}

test_pod_without_a_class_is_refused_first if {
	broken := object.union(pod, {"object": {"spec": {"containers": 1}}})
	answer := metadata.pipeline with input as broken with data.kubernetes.metadatapolicies as {"shop": rejecting}
	answer.reasons == ["quality of service: spec.containers: must be a list"]
}

test_what_no_predicate_asks_for_is_said if {
	decide(request, rejecting).reasons == [`metadata policy "a", rule 0: rejects objects with any metadata`]
}

test_no_input_is_no_request if {
	metadata.decision.allowed == false
	metadata.pipeline.allowed == false
}

# A label that forbids itself is put in by default.
both := {"a": policy([
	{
		"policyPredicate": {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}},
		"policyAction": {"updatedLabels": {"tier": "front"}},
	},
	{
		"policyPredicate": {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
		"policyAction": {"reject": true},
	},
])}

check(given, policies) := answer if {
	answer := metadata.checked with input as given with data.kubernetes.metadatapolicies as {"shop": policies}
}

with_labels(given, labels) := object.union(given, {"object": {"metadata": {"labels": labels}}})

test_what_a_default_has_set_passes_afterwards if {
	made := json.patch(request.object, decide(request, both).patch)
	made.metadata.labels.tier == "front"
	check(object.union(request, {"object": made}), both) == let_through
}

test_what_another_has_set_is_rejected_afterwards if {
	answer := check(with_labels(request, {"tier": "back"}), both)
	answer == {
		"allowed": false,
		"reasons": [`metadata policy "a", rule 1: rejects objects with label "tier" exists`],
		"patch": [],
		"policies": ["a"],
	}
}

test_afterwards_nothing_is_changed if {
	check(request, both) == let_through
}

test_afterwards_too_a_policy_is_judged_by_validation if {
	check(of_policy({"rules": [on(web, {"reject": 1})]}), {}).reasons == ["spec.rules[0].policyAction.reject: must be true or false"]
	check(of_policy({"rules": []}), rejecting) == let_through
}

test_afterwards_too_no_request_is_refused if {
	every given in [null, 1, "x", []] {
		answer := metadata.checked with input as given
		answer.reasons == ["there is no request"]
	}
	metadata.checked.allowed == false
}

batch_rejected := {"a": policy([{
	"policyPredicate": {"annotationSelector": {"matchLabels": {qos.annotation: "BestEffort"}}},
	"policyAction": {"reject": true},
}])}

test_afterwards_the_class_is_what_the_pod_has_by_then if {
	spoofed := object.union(pod, {"object": {"metadata": {"annotations": {qos.annotation: "Guaranteed"}}}})
	check(spoofed, batch_rejected).allowed == false
}

test_without_quality_of_service_annotations_are_what_they_are if {
	off := {"qos": false}
	answer := metadata.pipeline with input as pod
		with data.kubernetes.metadatapolicies as {"shop": batch_rejected}
		with data.kube_sync.config.metadata as off
	answer == let_through
	checked := metadata.checked with input as pod
		with data.kubernetes.metadatapolicies as {"shop": batch_rejected}
		with data.kube_sync.config.metadata as off
	checked == let_through
	broken := object.union(pod, {"object": {"spec": {"containers": 1}}})
	unread := metadata.pipeline with input as broken with data.kube_sync.config.metadata as off
	unread == let_through
}

test_quality_of_service_is_on_where_it_is_said if {
	answer := metadata.pipeline with input as pod with data.kube_sync.config.metadata as {"qos": true}
	count(answer.patch) == 1
}
