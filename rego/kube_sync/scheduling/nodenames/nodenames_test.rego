package kube_sync.scheduling.nodenames_test

import data.kube_sync.scheduling.world_test as world

named := {"nodeName": "node-1"}

denied := `spec.nodeName: "node-1" is not allowed`

test_pod_that_names_its_node_is_denied_unless_the_name_is_allowed if {
	every spec in [{}, {"allowed": {"nodeNames": ["node-2"]}}, {"allowed": {"nodeNames": null}}, {"required": {"nodeSelectors": {}}}] {
		world.denies(spec, named, denied)
	}
	world.admits({"allowed": {"nodeNames": ["node-1"]}}, named)
	world.admits({"allowed": {"nodeNames": []}}, named)
	every pod in [{}, {"nodeName": ""}, {"nodeName": null}] {
		world.admits({}, pod)
	}
}

test_names_of_several_policies_come_together if {
	specs := {"a": {"allowed": {"schedulerNames": [], "nodeNames": ["node-1"]}}, "b": {"allowed": {"nodeNames": ["node-2"]}}}
	world.decision(specs, named).allowed
	world.decision(specs, {"nodeName": "node-2"}).allowed
	world.decision(object.union(specs, {"c": {"allowed": {"nodeNames": []}}}), {"nodeName": "node-3"}).allowed
	not world.decided(specs, world.request("CREATE", named), {"merge_option": 4}).allowed
	not world.decided(specs, world.request("CREATE", {"nodeName": "node-2"}), {"merge_option": 3}).allowed
}

by(user) := world.decided({"p": {"allowed": {"schedulerNames": []}}}, object.union(world.request("CREATE", named), {"userInfo": user}), {}).allowed

test_whoever_has_to_name_nodes_may if {
	by({"username": "system:kube-scheduler"})
	by({"username": "system:node:node-1", "groups": ["system:nodes"]})
	by({"username": "system:serviceaccount:kube-system:daemon-set-controller"})
}

test_nobody_else_may if {
	not by({"username": "system:node:node-2", "groups": ["system:nodes"]})
	not by({"username": "system:node:node-1", "groups": []})
	not by({"username": "system:serviceaccount:kube-system:replicaset-controller"})
	not by({"username": "kubernetes-admin", "groups": ["system:masters"]})
}

# Of what a DaemonSet's template says the author is who writes the DaemonSet.
test_a_template_names_no_node_whoever_writes_it if {
	request := object.union(world.request("CREATE", named), {"template": true, "userInfo": {"username": "system:node:node-1", "groups": ["system:nodes"]}})
	not world.decided({"p": {"allowed": {"schedulerNames": []}}}, request, {}).allowed
	not world.decided({"p": {"allowed": {"schedulerNames": []}}}, object.union(request, {"userInfo": {"username": "system:kube-scheduler"}}), {}).allowed
}

test_bound_pod_may_be_updated if {
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	update := world.request("UPDATE", named)
	world.decided(specs, object.union(update, {"oldObject": update.object}), {}).allowed
	not world.decided(specs, object.union(update, {"oldObject": {"spec": {"nodeName": "node-2"}}}), {}).allowed
}

test_shape_is_judged if {
	answer := world.decision({"p": {"allowed": {"schedulerNames": [], "nodeNames": []}}}, {"nodeName": 1})
	answer.reasons == ["spec.nodeName: must be string, not number"]
}
