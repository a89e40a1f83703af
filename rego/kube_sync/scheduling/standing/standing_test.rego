package kube_sync.scheduling.standing_test

import data.kube_sync.scheduling.standing
import data.kube_sync.scheduling.world_test as world

daemonset(spec) := {"metadata": {"name": "any"}, "spec": {"template": {"spec": spec}}}

gpu := daemonset({"nodeSelector": {"gpu": "yes"}})

findings(specs, daemonsets) := found if {
	found := standing.findings with input as {"exempt_namespaces": ["kube-system"]}
		with data.kubernetes as object.union(world.cluster(specs), {"daemonsets": daemonsets})
}

restricted := {"restricted": {"allowed": {"schedulerNames": []}}}

test_daemonsets_that_are_denied_are_named_by_the_policies_that_deny_them if {
	found := findings(restricted, {"team-a": {"agent": gpu, "plain": daemonset({})}, "team-b": {"agent": gpu}})
	count(found.restricted) == 2
	startswith(found.restricted[0], "DaemonSet team-a/agent is denied by its template")
	contains(found.restricted[0], `spec.nodeSelector[gpu]: "yes" is not allowed`)
}

test_nobody_is_named_where_all_is_well_or_nobody_is_asked if {
	findings(restricted, {"team-a": {"plain": daemonset({})}, "kube-system": {"proxy": gpu}}) == {}
	findings({}, {"team-a": {"agent": gpu}}) == {}
	findings(restricted, {}) == {}
}

test_daemonset_that_may_use_no_policy_is_named_by_all_of_them if {
	nobody := object.union(object.remove(world.cluster({"a": {}, "b": {}}), ["clusterrolebindings"]), {"daemonsets": {"team-a": {"agent": gpu}}})
	found := standing.findings with input as {"exempt_namespaces": []} with data.kubernetes as nobody
	object.keys(found) == {"a", "b"}
	contains(found.a[0], "no SchedulingPolicy may be used by the service account default")
}

test_many_daemonsets_are_counted if {
	many := {sprintf("agent-%02d", [index]): gpu | some index in numbers.range(1, 23)}
	found := findings(restricted, {"team-a": many}).restricted
	count(found) == 21
	found[20] == "… and 3 more DaemonSets"
}
