package kube_sync.scheduling.daemonsets_test

import data.kube_sync.scheduling
import data.kube_sync.scheduling.world_test as world

hard := "requiredDuringSchedulingIgnoredDuringExecution"

soft := "preferredDuringSchedulingIgnoredDuringExecution"

arch_pattern := {"keys": ["arch"], "operators": ["In"], "values": ["amd64", "arm64"]}

arch(value) := {"key": "arch", "operator": "In", "values": [value]}

terms(list) := {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": list}}}}

on(value) := terms([{"matchExpressions": [arch(value)]}])

tie(node) := {"key": "metadata.name", "operator": "In", "values": [node]}

# What the controller makes of a template's required node affinity, whatever that was.
tied := terms([{"matchFields": [tie("node-1")]}])

requiring_arch := {"p": {
	"required": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": [arch_pattern]}]}}}},
	"allowed": {"schedulerNames": []},
}}

restricted := {"p": {"allowed": {"schedulerNames": []}}}

by_selector := {"p": {
	"required": {"nodeSelectors": {"arch": ["amd64", "arm64"]}},
	"allowed": {"schedulerNames": []},
	"default": {"nodeSelector": {"arch": "amd64"}},
}}

by_affinity := {"p": object.union(requiring_arch.p, {"default": on("amd64")})}

writing(operation, spec) := {
	"uid": "1",
	"kind": {"group": "apps", "version": "v1", "kind": "DaemonSet"},
	"operation": operation,
	"namespace": "team-a",
	"name": "agent",
	"userInfo": {"username": "alice", "groups": ["system:authenticated"]},
	"object": {
		"apiVersion": "apps/v1",
		"kind": "DaemonSet",
		"metadata": {"name": "agent", "namespace": "team-a"},
		"spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
	},
}

written(specs, spec) := world.decided(specs, writing("CREATE", spec), {})

making(spec) := object.union(world.request("CREATE", spec), {
	"userInfo": {"username": "system:serviceaccount:kube-system:daemon-set-controller"},
	"object": {"metadata": {"ownerReferences": [
		{"apiVersion": "v1", "kind": "Node", "name": "other", "uid": "2"},
		{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "3", "controller": true},
	]}},
})

holding(daemonsets, specs, request) := answer if {
	answer := scheduling.decision with input as request
		with data.kubernetes as object.union(world.cluster(specs), {"daemonsets": daemonsets})
}

made(specs, request, template) := holding({"team-a": {"agent": {"spec": {"template": {"spec": template}}}}}, specs, request)

before_it_is_replicated(specs, request) := holding({}, specs, request)

test_template_is_judged_when_it_is_written_by_its_service_account if {
	written(requiring_arch, on("arm64")) == {"allowed": true, "reasons": [], "patch": [], "policies": ["p"]}
	reasons := written(requiring_arch, on("s390x")).reasons
	count(reasons) == 2
	startswith(reasons[0], "spec.template.spec.affinity.nodeAffinity.")
	not written(requiring_arch, {}).allowed
	written(restricted, {}).allowed
	not written(restricted, on("arm64")).allowed
	not written(restricted, {"nodeName": "node-1"}).allowed
	written({}, {"serviceAccountName": "builder"}).reasons == ["no SchedulingPolicy may be used by the service account builder of namespace team-a"]
}

test_template_that_cannot_be_read_is_denied if {
	every template in [null, [], {"spec": 5}, {"spec": {"tolerations": {}}}] {
		request := json.patch(writing("CREATE", {}), [{"op": "replace", "path": "object/spec/template", "value": template}])
		answer := world.decided(restricted, request, {})
		answer.allowed == false
		some reason in answer.reasons
		startswith(reason, "spec.template.spec")
	}
	world.decided(restricted, object.union(writing("CREATE", {}), {"operation": "PATCH"}), {}).allowed == false
	world.decided(restricted, object.union(writing("CREATE", {}), {"namespace": null, "object": {"metadata": {"namespace": 5}}}), {}).allowed == false
}

test_template_is_judged_anew_only_where_it_changes if {
	update := writing("UPDATE", {"nodeSelector": {"gpu": "yes"}})
	same := object.union(update, {"oldObject": update.object, "object": {"metadata": {"labels": {"team": "a"}}}})
	world.decided(restricted, same, {}) == {"allowed": true, "reasons": [], "patch": [], "policies": []}
	world.decided(restricted, object.union(update, {"oldObject": writing("UPDATE", {}).object}), {}).allowed == false
	world.decided(restricted, object.union(update, {"oldObject": null}), {}).allowed == false
	world.decided(by_selector, object.union(writing("UPDATE", {}), {"oldObject": update.object}), {}).patch == written(by_selector, {}).patch
}

test_defaults_are_put_into_the_template if {
	written(by_selector, {}).patch == [{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"arch": "amd64"}}]
	written(by_affinity, {}).patch == [{"op": "add", "path": "/spec/template/spec/affinity", "value": on("amd64").affinity}]
	written(by_affinity, {"affinity": {"nodeAffinity": {}}}).patch == [{"op": "add", "path": "/spec/template/spec/affinity/nodeAffinity", "value": on("amd64").affinity.nodeAffinity}]
	written(by_affinity, on("arm64")).patch == []
}

test_merged_policy_is_that_of_the_templates_service_account if {
	merged := scheduling.merged with input as writing("CREATE", {}) with data.kubernetes as world.cluster(by_selector)
	merged == by_selector.p
}

test_tolerations_of_the_controller_need_no_permission_in_a_template if {
	written(restricted, {"tolerations": [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}]}).allowed
	not written(restricted, {"tolerations": [{"operator": "Exists"}]}).allowed
}

# The controller has replaced the template's own term by the name of the node.
test_pod_of_a_daemonset_is_judged_by_what_its_template_says_of_nodes if {
	made(requiring_arch, making(tied), on("arm64")) == {"allowed": true, "reasons": [], "patch": [], "policies": ["p"]}
	made(requiring_arch, making(tied), on("s390x")).allowed == false
	made(requiring_arch, making(tied), {}).allowed == false
	made(restricted, making(tied), {}).allowed
	made(restricted, making(tied), {"affinity": null, "nodeSelector": null, "nodeName": null}).allowed
	made(restricted, making(tied), on("arm64")).allowed == false
	made(restricted, making(tied), {"nodeName": "node-1"}).allowed == false
	made(restricted, making(tied), terms([{"matchFields": [tie("master-1")]}])).allowed == false
}

test_pod_of_a_daemonset_gets_nothing_that_nodes_are_chosen_by if {
	made(by_affinity, making(tied), on("amd64")) == {"allowed": true, "reasons": [], "patch": [], "policies": ["p"]}
	made(by_selector, making(tied), {"nodeSelector": {"arch": "arm64"}}) == {"allowed": true, "reasons": [], "patch": [], "policies": ["p"]}
}

test_rest_of_a_daemonsets_pod_is_judged_as_it_is if {
	made(restricted, making(object.union(tied, {"nodeSelector": {"gpu": "yes"}})), {}).allowed == false
	made(restricted, making(object.union(tied, {"priorityClassName": "high"})), {}).allowed == false
	preferring := {"affinity": {"nodeAffinity": {soft: [{"weight": 1, "preference": {"matchExpressions": [arch("arm64")]}}]}}}
	made(restricted, making(object.union(tied, preferring)), {}).allowed == false
	extra := terms([{"matchFields": [tie("node-1")], "matchExpressions": [arch("arm64")]}])
	made(restricted, making(extra), {}).allowed == false
	made(requiring_arch, making(extra), {}).allowed
	made(requiring_arch, making(extra), on("amd64")).allowed
	made(restricted, making({}), {}).allowed
}

test_pod_whose_daemonset_is_not_replicated_yet_was_judged_with_it if {
	before_it_is_replicated(by_selector, making(tied)) == {"allowed": true, "reasons": [], "patch": [], "policies": ["p"]}
	before_it_is_replicated(requiring_arch, making(tied)).allowed
	before_it_is_replicated(restricted, making(object.union(tied, {"nodeName": "node-1"}))).allowed
	before_it_is_replicated(restricted, making(object.union(tied, {"nodeSelector": {"gpu": "yes"}}))).allowed == false
}

test_what_is_required_is_not_waived_while_no_daemonset_is_known if {
	world.decided(requiring_arch, making(tied), {}).allowed == false
	world.decided(restricted, making(tied), {}).allowed
	orphan := json.patch(making(tied), [{"op": "remove", "path": "object/metadata/ownerReferences"}])
	before_it_is_replicated(requiring_arch, orphan).allowed == false
}

test_nobody_else_makes_pods_of_a_daemonset if {
	other := object.union(making(tied), {"userInfo": {"username": "system:serviceaccount:team-a:builder"}})
	made(requiring_arch, other, on("arm64")).allowed == false
	made(restricted, other, {}).allowed == false
	world.decided(restricted, making(tied), {"trust_daemonset_controller": false}).allowed == false
}

# Nodes are chosen by then: what a pod has of that cannot be changed by an update, only narrowed.
test_pod_that_is_tied_to_its_node_may_be_updated if {
	update := world.request("UPDATE", object.union(tied, {"activeDeadlineSeconds": 5}))
	stored := world.request("UPDATE", tied).object
	every specs in [restricted, requiring_arch, by_selector] {
		world.decided(specs, object.union(update, {"oldObject": stored}), {}).allowed
	}
	other := world.request("UPDATE", terms([{"matchFields": [tie("master-1")]}]))
	world.decided(restricted, object.union(other, {"oldObject": stored}), {}).allowed == false
	world.decided(requiring_arch, object.union(update, {"oldObject": {"spec": {"affinity": null}}}), {}).allowed == false
	world.decided(requiring_arch, object.union(world.request("UPDATE", {}), {"oldObject": world.request("UPDATE", on("arm64")).object}), {}).allowed == false
	world.decided(restricted, object.union(update, {"oldObject": stored}), {"trust_daemonset_controller": false}).allowed == false
}
