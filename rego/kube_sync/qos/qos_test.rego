package kube_sync.qos_test

import data.kube_sync.qos

request := {
	"operation": "CREATE",
	"namespace": "shop",
	"kind": {"group": "", "version": "v1", "kind": "Pod"},
	"object": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}},
}

test_pod_gets_its_class if {
	answer := qos.decision with input as request
	answer == {
		"allowed": true,
		"reasons": [`quality of service: annotation "scheduler.alpha.kubernetes.io/qos" is "BestEffort"`],
		"patch": [{"op": "add", "path": "/metadata/annotations", "value": {qos.annotation: "BestEffort"}}],
		"policies": [],
	}
}

test_what_the_author_wrote_is_overwritten if {
	spoofed := json.patch(request, [{"op": "add", "path": "object/metadata/annotations", "value": {
		qos.annotation: "Guaranteed",
		"keep": "1",
	}}])
	answer := qos.decision with input as spoofed
	answer.patch == [{
		"op": "add",
		"path": "/metadata/annotations/scheduler.alpha.kubernetes.io~1qos",
		"value": "BestEffort",
	}]
}

test_annotation_that_is_right_is_left if {
	right := json.patch(request, [{"op": "add", "path": "object/metadata/annotations", "value": {qos.annotation: "BestEffort"}}])
	answer := qos.decision with input as right
	answer.patch == []
}

test_pod_that_cannot_be_read_is_refused if {
	broken := json.patch(request, [{"op": "add", "path": "object/spec/containers", "value": [{"resources": {"limits": {"cpu": "x"}}}]}])
	answer := qos.decision with input as broken
	answer == {
		"allowed": false,
		"reasons": [`quality of service: spec.containers[0].resources.limits.cpu: "x" is no quantity`],
		"patch": [],
		"policies": [],
	}
}

test_only_pods_that_are_written_get_one if {
	every change in [
		{"operation": "DELETE"},
		{"subResource": "status"},
		{"kind": {"group": "apps", "version": "v1", "kind": "Pod"}},
		{"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}},
	] {
		answer := qos.decision with input as object.union(request, change)
		answer == {"allowed": true, "reasons": [], "patch": [], "policies": []}
	}
}

test_no_request_is_refused if {
	every given in [null, "x", []] {
		answer := qos.decision with input as given
		answer.allowed == false
	}
}

test_no_input_is_no_request if {
	qos.decision.allowed == false
}
