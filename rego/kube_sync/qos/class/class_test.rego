package kube_sync.qos.class_test

import data.kube_sync.qos.class

both(cpu, memory) := {"cpu": cpu, "memory": memory}

same := {"requests": both("100m", "1Gi"), "limits": both("0.1", "1024Mi")}

container(resources) := {"name": "c", "resources": resources}

pod(containers, first) := {
	"containers": [container(resources) | some resources in containers],
	"initContainers": [container(resources) | some resources in first],
}

sized(requests, limits) := {"resources": {"requests": requests, "limits": limits}}

test_equal_requests_and_limits_are_guaranteed if {
	class.of(pod([same, same], [same])) == "Guaranteed"
	class.of(pod([{"limits": both("1", "1")}], [])) == "Guaranteed"
}

test_nothing_asked_for_is_best_effort if {
	every spec in [{}, pod([{}], []), {"containers": [{"name": "c"}]}] { class.of(spec) == "BestEffort" }
	class.of(pod([{"limits": {"example.com/gpu": "1"}}], [])) == "BestEffort"
	class.of(pod([{"limits": both("0", "-1"), "requests": both("0m", null)}], [])) == "BestEffort"
}

test_anything_else_is_burstable if {
	class.of(pod([same, {}], [])) == "Burstable"
	class.of(pod([same], [{}])) == "Burstable"
	class.of(pod([{}], [{"requests": {"cpu": "1"}}])) == "Burstable"
	class.of(pod([{"requests": both("1", "1")}], [])) == "Burstable"
	class.of(pod([{"limits": {"memory": "1Gi"}}], [])) == "Burstable"
	class.of(pod([{"limits": both("1", "1"), "requests": both("0", "0")}], [])) == "Burstable"
	class.of(pod([{"limits": both("1", "1Gi"), "requests": both("1", "1G")}], [])) == "Burstable"
}

test_amounts_are_compared_as_they_are_stored_in_whole_thousandths if {
	class.of(pod([{"limits": both("101m", "1"), "requests": both("100001u", "1")}], [])) == "Guaranteed"
	class.of(pod([{"limits": both("1m", "1"), "requests": both("1n", "1")}], [])) == "Guaranteed"
	class.of(pod([{"limits": both("100m", "1"), "requests": both("100001u", "1")}], [])) == "Burstable"
}

test_amounts_are_compared_in_sum if {
	crossed := [
		{"limits": both("1", "1"), "requests": both("2", "1")},
		{"limits": both("2", "1"), "requests": both("1", "1")},
	]
	class.of(pod(crossed, [])) == "Guaranteed"
}

test_ephemeral_containers_do_not_count if {
	class.of({"containers": [container(same)], "ephemeralContainers": [container({})]}) == "Guaranteed"
}

test_resources_of_the_pod_decide_alone if {
	of_pod := sized(both("1", "1"), both("1", "1"))
	class.of(object.union(pod([{}], []), of_pod)) == "Guaranteed"
	class.of(object.union(pod([same], []), {"resources": {}})) == "BestEffort"
	class.of(object.union(pod([same], []), {"resources": null})) == "Guaranteed"
	class.of(object.union(pod([same], []), {"resources": {"requests": {"cpu": "1"}}})) == "Burstable"
}

test_requests_of_the_pod_default_to_those_of_its_containers if {
	of_pod := {"resources": {"limits": both("1", "1Gi")}}
	class.of(object.union(pod([{}], []), of_pod)) == "Guaranteed"
	class.of(object.union(pod([same], []), of_pod)) == "Burstable"
	class.of(object.union(pod([{"requests": both("1", "1Gi")}], []), of_pod)) == "Guaranteed"
}

test_requests_of_containers_that_start_one_by_one_are_not_added if {
	of_pod := {"resources": {"limits": both("1", "1Gi")}}
	half := {"requests": both("500m", "512Mi")}
	whole := {"requests": both("1", "1Gi")}
	sidecar := {"name": "s", "restartPolicy": "Always", "resources": half}
	class.of(object.union(pod([{}], [whole, whole]), of_pod)) == "Guaranteed"
	class.of(object.union({"containers": [container(half)], "initContainers": [sidecar]}, of_pod)) == "Guaranteed"
	class.of(object.union({"initContainers": [sidecar, container(half)]}, of_pod)) == "Guaranteed"
	class.of(object.union({"initContainers": [container(half), sidecar]}, of_pod)) == "Burstable"
}

test_huge_pages_of_containers_are_limits_of_the_pod if {
	huge := {"limits": {"hugepages-2Mi": "2Mi"}, "requests": {"cpu": "1"}}
	class.of(object.union(pod([huge], []), {"resources": {"requests": {"cpu": "0"}}})) == "BestEffort"
	class.of(object.union(pod([huge], []), {"resources": {"requests": {"memory": "0"}}})) == "Burstable"
}

test_amount_that_is_none_is_a_problem_with_its_path if {
	every spec, message in {
		pod([{}, {"limits": {"cpu": "1K"}}], []): `spec.containers[1].resources.limits.cpu: "1K" is no quantity`,
		pod([], [{"requests": {"memory": false}}]): `spec.initContainers[0].resources.requests.memory: false is no quantity`,
		{"resources": {"limits": {"cpu": []}}}: "spec.resources.limits.cpu: [] is no quantity",
	} {
		class.problems(spec) == {message}
	}
}

test_shape_that_no_pod_has_is_a_problem if {
	class.problems("x") == {"spec: must be an object"}
	class.problems({"containers": {}}) == {"spec.containers: must be a list"}
	class.problems({"containers": ["x", null]}) == {
		"spec.containers[0]: must be an object",
		"spec.containers[1]: must be an object",
	}
	class.problems({"containers": [{"resources": "x"}]}) == {"spec.containers[0].resources: must be an object"}
	class.problems({"resources": {"limits": 1, "requests": null}}) == {"spec.resources.limits: must be an object"}
}

test_pod_as_it_should_be_has_no_problem if {
	class.problems(pod([same, {}], [{"limits": null}])) == set()
	class.problems({}) == set()
	class.problems(pod([{"limits": {"example.com/gpu": "x"}}], [])) == set()
}
