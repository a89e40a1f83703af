package kube_sync.scheduling.pods_test

import data.kube_sync.scheduling.pods
import data.kube_sync.scheduling.world_test as world

everything := {"p": {"allowed": {
	"schedulerNames": [],
	"priorityClasseNames": [],
	"nodeSelectors": {},
	"tolerations": [],
	"affinities": {},
}}}

unreadable(spec, text) if {
	answer := world.decision(everything, spec)
	answer.allowed == false
	some reason in answer.reasons
	startswith(reason, text)
}

hard := "requiredDuringSchedulingIgnoredDuringExecution"

test_whatever_cannot_be_read_is_denied_by_its_path if {
	every text, spec in {
		"spec.schedulerName: must be string, not number": {"schedulerName": 1},
		"spec.priorityClassName: must be string, not array": {"priorityClassName": []},
		"spec.serviceAccountName: must be string, not object": {"serviceAccountName": {}},
		"spec.nodeSelector: must be object, not array": {"nodeSelector": ["disk"]},
		"spec.nodeSelector[disk]: must be string, not null": {"nodeSelector": {"disk": null}},
		"spec.tolerations: must be array, not string": {"tolerations": "all"},
		"spec.tolerations[0]: must be object, not string": {"tolerations": ["all"]},
		"spec.tolerations[1].kee: unknown field": {"tolerations": [{}, {"kee": "x"}]},
		"spec.affinity: must be object, not array": {"affinity": []},
		"spec.affinity.nodeAffinty: unknown field": {"affinity": {"nodeAffinty": {}}},
		"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: must be object, not array": {"affinity": {"nodeAffinity": {hard: []}}},
		"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution: must be array, not object": {"affinity": {"podAffinity": {hard: {}}}},
		"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels[a/b]: must be string, not number": {"affinity": {"podAffinity": {hard: [{"labelSelector": {"matchLabels": {"a/b": 1}}}]}}},
	} {
		unreadable(spec, text)
	}
}

test_fields_that_are_not_about_scheduling_are_not_read if {
	world.decision(everything, {"containers": "none", "volumes": 5}).allowed
}

test_pod_without_spec_or_namespace_is_denied if {
	request := world.request("CREATE", {})
	every text, change in {
		"spec: must be an object": {"object": {"spec": []}},
		"metadata.namespace: must be a name": {"namespace": "", "object": {"metadata": {"namespace": 5}}},
		"metadata.labels: must be an object": {"object": {"metadata": {"labels": "none"}}},
	} {
		answer := world.decided(everything, object.union(request, change), {})
		answer.allowed == false
		text in answer.reasons
	}
	pods.problems == {"spec: must be an object", "metadata.namespace: must be a name"} with input as {}
}

test_namespace_is_that_of_the_request if {
	pods.namespace == "team-a" with input as {"namespace": "team-a", "object": {"metadata": {"namespace": "team-b"}}}
	pods.namespace == "team-b" with input as {"object": {"metadata": {"namespace": "team-b"}}}
	pods.namespace == "team-b" with input as {"namespace": "", "object": {"metadata": {"namespace": "team-b"}}}
}

test_labels_may_be_null if {
	pods.problems == set() with input as {"namespace": "team-a", "object": {"metadata": {"labels": null}, "spec": {}}}
	pods.asked.labels == {} with input as {"namespace": "team-a", "object": {"metadata": {"labels": null}, "spec": {}}}
}

account(spec) := name if {
	name := pods.account with input as {"object": {"spec": spec}}
}

test_service_account_is_default_if_none_is_named if {
	account({"serviceAccountName": "builder"}) == "builder"
	account({"serviceAccount": "builder"}) == "builder"
	account({"serviceAccountName": "one", "serviceAccount": "two"}) == "one"
	every spec in [{}, {"serviceAccountName": ""}, {"serviceAccountName": null}] {
		account(spec) == "default"
	}
}
