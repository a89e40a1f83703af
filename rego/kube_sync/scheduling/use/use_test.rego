package kube_sync.scheduling.use_test

import data.kube_sync.scheduling.use
import data.kube_sync.scheduling.world_test as world

policies := {"a": {}, "b": {}, "c": {}}

rule(change) := object.union(world.role(["a"]).rules[0], change)

usable(kubernetes) := usable_with(kubernetes, {}, {})

usable_with(kubernetes, change, config) := names if {
	names := use.names with input as object.union(world.request("CREATE", {"serviceAccountName": "builder"}), change)
		with data.kubernetes as object.union({"schedulingpolicies": policies}, kubernetes)
		with data.kube_sync.config.scheduling as config
}

through_cluster_role(rules) := usable({
	"clusterroles": {"use": {"rules": rules}},
	"clusterrolebindings": {"x": world.binding(world.everyone)},
})

through_subject(subject) := usable({
	"clusterroles": {"use": world.role(["a"])},
	"clusterrolebindings": {"x": world.binding(subject)},
})

through_binding(subject, role) := usable({
	"clusterroles": {"use": world.role(["a"])},
	"roles": {"team-a": {"use": world.role(["b"])}, "team-b": {"other": world.role(["c"])}},
	"rolebindings": {"team-a": {"x": {"subjects": [subject], "roleRef": role}}},
})

test_rule_grants_the_policies_that_it_names if {
	through_cluster_role([rule({})]) == {"a"}
	through_cluster_role([rule({}), rule({"resourceNames": ["c", "not-there"]})]) == {"a", "c"}
}

test_rule_without_names_grants_all_policies if {
	every names in [[], null] {
		through_cluster_role([rule({"resourceNames": names})]) == {"a", "b", "c"}
	}
	through_cluster_role([object.remove(rule({}), ["resourceNames"])]) == {"a", "b", "c"}
}

test_wildcards_are_those_of_kubernetes if {
	every change in [{"verbs": ["*"]}, {"apiGroups": ["*"]}, {"resources": ["*"]}, {"verbs": ["get", "use"]}] {
		through_cluster_role([rule(change)]) == {"a"}
	}
	through_cluster_role([rule({"resourceNames": ["*"]})]) == set()
}

test_rule_for_something_else_grants_nothing if {
	every change in [
		{"verbs": ["get"]},
		{"verbs": []},
		{"verbs": null},
		{"apiGroups": [""]},
		{"apiGroups": ["extensions"]},
		{"resources": ["pods"]},
		{"resources": ["*/status"]},
		{"resources": ["schedulingpolicies/status"]},
		{"resourceNames": "a"},
	] {
		through_cluster_role([rule(change)]) == set()
	}
	through_cluster_role([{"nonResourceURLs": ["*"], "verbs": ["*"]}]) == set()
	through_cluster_role(null) == set()
}

test_group_of_the_api_is_a_setting if {
	kubernetes := {
		"clusterroles": {"use": {"rules": [rule({"apiGroups": ["example.com"]})]}},
		"clusterrolebindings": {"x": world.binding(world.everyone)},
	}
	usable_with(kubernetes, {}, {"group": "example.com"}) == {"a"}
	usable_with(kubernetes, {}, {}) == set()
}

test_groups_of_a_service_account_are_subjects if {
	every name in ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:team-a"] {
		through_subject({"kind": "Group", "name": name}) == {"a"}
		through_subject({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}) == {"a"}
		through_subject({"kind": "User", "name": name}) == set()
	}
	through_subject({"kind": "Group", "name": "system:serviceaccounts:team-b"}) == set()
	through_subject({"kind": "Group", "name": "system:unauthenticated"}) == set()
	through_subject({"kind": "Group", "name": "system:authenticated", "apiGroup": "example.com"}) == set()
}

test_service_account_is_a_user_by_its_full_name if {
	through_subject({"kind": "User", "name": "system:serviceaccount:team-a:builder"}) == {"a"}
	through_subject({"kind": "User", "name": "builder"}) == set()
}

test_service_account_of_a_cluster_role_binding_needs_its_namespace if {
	through_subject({"kind": "ServiceAccount", "name": "builder", "namespace": "team-a"}) == {"a"}
	through_subject({"kind": "ServiceAccount", "name": "builder", "namespace": "team-b"}) == set()
	through_subject({"kind": "ServiceAccount", "name": "default", "namespace": "team-a"}) == set()
	through_subject({"kind": "ServiceAccount", "name": "builder"}) == set()
	through_subject({"kind": "ServiceAccount", "name": "builder", "namespace": "team-a", "apiGroup": "x"}) == set()
}

test_service_account_of_a_role_binding_is_of_its_namespace_unless_it_says if {
	role := {"kind": "Role", "name": "use"}
	every account in [{}, {"namespace": ""}, {"namespace": null}, {"namespace": "team-a"}] {
		through_binding(object.union({"kind": "ServiceAccount", "name": "builder"}, account), role) == {"b"}
	}
	through_binding({"kind": "ServiceAccount", "name": "builder", "namespace": "team-b"}, role) == set()
}

test_role_binding_takes_a_role_of_its_namespace_or_a_cluster_role if {
	through_binding(world.everyone, {"kind": "Role", "name": "use"}) == {"b"}
	through_binding(world.everyone, {"kind": "ClusterRole", "name": "use"}) == {"a"}
	through_binding(world.everyone, {"kind": "Role", "name": "other"}) == set()
	through_binding(world.everyone, {"kind": "Other", "name": "use"}) == set()
}

test_role_binding_of_another_namespace_grants_nothing if {
	usable({
		"clusterroles": {"use": world.role(["a"])},
		"rolebindings": {"team-b": {"x": world.binding(world.everyone)}},
	}) == set()
}

test_cluster_role_binding_takes_no_role if {
	usable({
		"roles": {"team-a": {"use": world.role(["a"])}},
		"clusterroles": {"use": world.role(["a"])},
		"clusterrolebindings": {"x": object.union(world.binding(world.everyone), {"roleRef": {"kind": "Role"}})},
	}) == set()
}

test_binding_to_a_role_that_is_not_there_grants_nothing if {
	usable({"clusterrolebindings": {"x": world.binding(world.everyone)}}) == set()
	usable({"rolebindings": {"team-a": {"x": world.binding(world.everyone)}}}) == set()
}

test_nothing_replicated_grants_nothing if {
	use.names == set() with input as world.request("CREATE", {})
	use.names == set() with input as {}
}

sender := {"userInfo": {"username": "alice", "groups": ["admins"]}}

test_sender_counts_only_where_that_is_set if {
	every subject in [{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "admins"}] {
		kubernetes := {
			"clusterroles": {"use": world.role(["a"])},
			"clusterrolebindings": {"x": world.binding(subject)},
		}
		usable_with(kubernetes, sender, {}) == set()
		usable_with(kubernetes, sender, {"user_may_use": false}) == set()
		usable_with(kubernetes, sender, {"user_may_use": true}) == {"a"}
	}
}

test_sender_that_is_a_service_account_counts_as_one if {
	kubernetes := {
		"clusterroles": {"use": world.role(["a"])},
		"clusterrolebindings": {"x": world.binding({"kind": "ServiceAccount", "name": "robot", "namespace": "ci"})},
	}
	robot := {"userInfo": {"username": "system:serviceaccount:ci:robot"}}
	usable_with(kubernetes, robot, {"user_may_use": true}) == {"a"}
	usable_with(kubernetes, robot, {}) == set()
}
