package kube_sync.scheduling.merge_test

import data.kube_sync.scheduling
import data.kube_sync.scheduling.world_test as world

merged(option, specs) := answer if {
	answer := scheduling.merged with input as world.request("CREATE", {})
		with data.kubernetes as world.cluster(specs)
		with data.kube_sync.config.scheduling.merge_option as option
}

# The two policies that the design proposal merges, and what it makes of them.
a := {
	"required": {"nodeSelectors": {"arch": ["amd64", "arm64"]}},
	"allowed": {"nodeSelectors": {"disk": ["ssd"]}},
	"default": {"nodeSelector": {"arch": "amd64"}},
}

b := {
	"required": {"nodeSelectors": {"arch": ["amd64", "arm64", "i386"], "os": ["Linux", "Windows"]}, "priorityClasseNames": ["bronze", "gold", "silver"]},
	"allowed": {"nodeSelectors": {"disk": ["sata"]}},
	"default": {"nodeSelector": {"arch": "i386", "os": "Linux"}, "priorityClasseName": "bronze"},
}

test_option_1_is_deep_first_seen_and_adds_what_is_allowed if {
	merged(1, {"b": b, "a": a}) == {
		"required": {"nodeSelectors": {"arch": ["amd64", "arm64"], "os": ["Linux", "Windows"]}, "priorityClasseNames": ["bronze", "gold", "silver"]},
		"allowed": {"nodeSelectors": {"disk": ["ssd", "sata"]}},
		"default": {"nodeSelector": {"arch": "amd64", "os": "Linux"}, "priorityClasseName": "bronze"},
	}
}

terms_of(half, key) := {half: {"nodeSelectorTerms": [{"matchExpressions": [{"keys": [key], "operators": ["Exists"]}]}]}}

# Not half of one and half of another, which would be an affinity that no policy names.
test_option_1_takes_a_kind_of_affinity_from_one_policy if {
	every first, second in {
		{"nodeAffinities": {}}: {"nodeAffinities": terms_of(hard, "b")},
		{"nodeAffinities": {hard: {}}}: {"nodeAffinities": terms_of(hard, "b")},
		{"nodeAffinities": terms_of(soft, "a")}: {"nodeAffinities": terms_of(hard, "b")},
		{"podAntiAffinities": {hard: {}}}: {"podAntiAffinities": {hard: [{"topologyKeys": ["zone"]}]}},
	} {
		specs := {"a": {"required": {"affinities": first}}, "b": {"required": {"affinities": object.union(second, {"podAffinities": {}})}}}
		merged(1, specs).required.affinities == object.union({"podAffinities": {}}, first)
	}
	preferred := {soft: [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}
	halves := {"a": {"default": {"affinity": {"nodeAffinity": preferred}}}, "b": {"default": {"affinity": {"nodeAffinity": terms_of(hard, "b"), "podAffinity": {soft: []}}}}}
	merged(1, halves)["default"].affinity == {"nodeAffinity": preferred, "podAffinity": {soft: []}}
}

test_option_2_is_the_first_policy if {
	merged(2, {"b": b, "a": a}) == a
}

test_option_3_is_the_first_of_each_field if {
	merged(3, {"b": b, "a": a}) == {
		"required": {"nodeSelectors": {"arch": ["amd64", "arm64"]}, "priorityClasseNames": ["bronze", "gold", "silver"]},
		"allowed": {"nodeSelectors": {"disk": ["ssd"]}},
		"default": {"nodeSelector": {"arch": "amd64"}, "priorityClasseName": "bronze"},
	}
}

test_order_is_that_of_bytes if {
	specs := {"p-2": {"default": {"schedulerName": "two"}}, "p-10": {"default": {"schedulerName": "ten"}}, "P": {}}
	merged(1, specs)["default"].schedulerName == "ten"
	merged(2, specs) == {}
}

test_all_and_some_more_is_all if {
	every field in ["schedulerNames", "priorityClasseNames", "tolerations"] {
		some_more := {"schedulerNames": ["x"], "priorityClasseNames": ["x"], "tolerations": [{"keys": ["x"]}]}
		merged(1, {"a": {"allowed": object.filter(some_more, [field])}, "b": {"allowed": {field: []}}}).allowed == {field: []}
		merged(1, {"a": {"allowed": {field: []}}, "b": {"allowed": object.filter(some_more, [field])}}).allowed == {field: []}
	}
	merged(1, {"a": {"allowed": {"nodeSelectors": {"disk": ["ssd"]}}}, "b": {"allowed": {"nodeSelectors": {}}}}).allowed == {"nodeSelectors": {}}
	merged(1, {"a": {"allowed": {"nodeSelectors": {"disk": ["ssd"]}}}, "b": {"allowed": {"nodeSelectors": {"disk": [], "gpu": ["1"]}}}}).allowed == {"nodeSelectors": {"disk": [], "gpu": ["1"]}}
}

test_lists_are_joined_once_in_the_order_seen if {
	merged(1, {"a": {"allowed": {"schedulerNames": ["z", "y"]}}, "b": {"allowed": {"schedulerNames": ["y", "x"]}}}).allowed == {"schedulerNames": ["z", "y", "x"]}
	merged(1, {"a": {"allowed": {"tolerations": [{"keys": ["b"]}]}}, "b": {"allowed": {"tolerations": [{"keys": ["a"]}, {"keys": ["b"]}]}}}).allowed == {"tolerations": [{"keys": ["b"]}, {"keys": ["a"]}]}
}

hard := "requiredDuringSchedulingIgnoredDuringExecution"

soft := "preferredDuringSchedulingIgnoredDuringExecution"

node(half, key) := {"nodeAffinities": {half: {"nodeSelectorTerms": [{"matchExpressions": [{"keys": [key], "operators": ["Exists"]}]}]}}}

pod(half, key) := {"podAffinities": {half: [{"topologyKeys": [key]}]}}

allowing(affinities) := {"allowed": {"affinities": affinities}}

joined(one, other) := merged(1, {"a": allowing(one), "b": allowing(other)}).allowed.affinities

test_affinities_are_joined_half_by_half if {
	joined(node(hard, "a"), node(hard, "b")).nodeAffinities[hard].nodeSelectorTerms == [
		{"matchExpressions": [{"keys": ["a"], "operators": ["Exists"]}]},
		{"matchExpressions": [{"keys": ["b"], "operators": ["Exists"]}]},
	]
	joined(node(hard, "a"), node(soft, "b")).nodeAffinities == object.union(node(hard, "a"), node(soft, "b")).nodeAffinities
	joined(pod(soft, "a"), pod(soft, "b")) == {"podAffinities": {soft: [{"topologyKeys": ["a"]}, {"topologyKeys": ["b"]}]}}
	joined(pod(soft, "a"), node(soft, "b")) == object.union(pod(soft, "a"), node(soft, "b"))
}

test_all_of_an_affinity_absorbs_its_parts if {
	joined({}, pod(hard, "a")) == {}
	joined(pod(hard, "a"), {"podAffinities": {}}) == {"podAffinities": {}}
	joined(pod(hard, "a"), {"podAffinities": {hard: {}}}) == {"podAffinities": {hard: {}}}
}

test_section_that_no_policy_has_is_not_there if {
	merged(1, {"a": {"default": {"schedulerName": "x"}}}) == {"default": {"schedulerName": "x"}}
	merged(1, {"a": {}}) == {}
}

# Option 4.
judged(specs, pod_spec) := world.decided(specs, world.request("CREATE", pod_spec), {"merge_option": 4})

test_option_4_wants_every_policy_satisfied if {
	specs := {"a": {"allowed": {"schedulerNames": ["x", "y"]}}, "b": {"required": {"schedulerNames": ["y", "z"]}}}
	judged(specs, {"schedulerName": "y"}).allowed
	not judged(specs, {"schedulerName": "x"}).allowed
	not judged(specs, {"schedulerName": "z"}).allowed
}

test_option_4_is_opened_by_no_further_policy if {
	specs := {"a": {"allowed": {"schedulerNames": ["x"]}}, "all": {"allowed": {"schedulerNames": [], "tolerations": []}}}
	not judged(specs, {"schedulerName": "y"}).allowed
	not judged(specs, {"schedulerName": "x", "tolerations": [{"operator": "Exists"}]}).allowed
	judged(specs, {"schedulerName": "x"}).allowed
}

test_option_4_denies_what_two_policies_require_differently if {
	specs := {"a": {"required": {"schedulerNames": ["x"]}}, "b": {"required": {"schedulerNames": ["y"]}}}
	every name in ["x", "y", "z"] {
		not judged(specs, {"schedulerName": name}).allowed
	}
}

test_option_4_injects_the_first_default_and_judges_it if {
	specs := {
		"a": {"allowed": {"schedulerNames": []}, "default": {"schedulerName": "x"}},
		"b": {"allowed": {"schedulerNames": ["x"]}, "default": {"schedulerName": "y"}},
	}
	judged(specs, {}).patch == [{"op": "add", "path": "/spec/schedulerName", "value": "x"}]
	not judged(object.union(specs, {"b": {"allowed": {"schedulerNames": ["y"]}}}), {}).allowed
}

test_option_4_shows_what_all_policies_say if {
	merged(4, {"a": a, "b": object.union(b, {"allowed": {"nodeSelectors": {"disk": ["ssd"]}}})}) == {
		"required": {"nodeSelectors": {"arch": ["amd64", "arm64"], "os": ["Linux", "Windows"]}, "priorityClasseNames": ["bronze", "gold", "silver"]},
		"allowed": {"nodeSelectors": {"disk": ["ssd"]}},
		"default": {"nodeSelector": {"arch": "amd64", "os": "Linux"}, "priorityClasseName": "bronze"},
	}
}

test_nothing_usable_merges_to_nothing if {
	merged(1, {}) == {}
	merged(3, {}) == {}
}
