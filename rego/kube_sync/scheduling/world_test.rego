package kube_sync.scheduling.world_test

import data.kube_sync.scheduling

# Helpers of the tests beside the rules: a namespace team-a that may use every policy.
role(names) := {"rules": [{
	"apiGroups": ["policy.kube-sync.io"],
	"resources": ["schedulingpolicies"],
	"verbs": ["use"],
	"resourceNames": names,
}]}

binding(subject) := {
	"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "use"},
	"subjects": [subject],
}

everyone := {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}

cluster(specs) := {
	"schedulingpolicies": {name: {"metadata": {"name": name}, "spec": spec} | some name, spec in specs},
	"clusterroles": {"use": role([name | some name, _ in specs])},
	"clusterrolebindings": {"everyone": binding(everyone)},
}

request(operation, spec) := {
	"uid": "1",
	"kind": {"group": "", "version": "v1", "kind": "Pod"},
	"operation": operation,
	"namespace": "team-a",
	"name": "p",
	"userInfo": {"username": "alice", "groups": ["system:authenticated"]},
	"object": {
		"apiVersion": "v1",
		"kind": "Pod",
		"metadata": {"name": "p", "namespace": "team-a", "labels": {"app": "shop"}},
		"spec": spec,
	},
}

decided(specs, asked, config) := answer if {
	answer := scheduling.decision with input as asked
		with data.kubernetes as cluster(specs)
		with data.kube_sync.config.scheduling as config
}

decision(specs, pod) := decided(specs, request("CREATE", pod), {})

admits(spec, pod) if decision({"p": object.union({"allowed": {"schedulerNames": []}}, spec)}, pod).allowed

denies(spec, pod, text) if {
	answer := decision({"p": object.union({"allowed": {"schedulerNames": []}}, spec)}, pod)
	answer.allowed == false
	answer.patch == []
	some reason in answer.reasons
	contains(reason, text)
	contains(reason, "policies considered: p")
}

# The spec of the pod once it is admitted.
patched(spec, pod) := made.spec if {
	answer := decision({"p": object.union({"allowed": {"schedulerNames": []}}, spec)}, pod)
	answer.allowed
	made := json.patch(request("CREATE", pod).object, answer.patch)
}
