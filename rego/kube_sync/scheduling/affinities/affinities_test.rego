package kube_sync.scheduling.affinities_test

import data.kube_sync.scheduling.world_test as world

hard := "requiredDuringSchedulingIgnoredDuringExecution"

soft := "preferredDuringSchedulingIgnoredDuringExecution"

pattern := {"keys": ["region", "zone"], "operators": ["In", "NotIn"], "values": ["eu", "us"]}

allowing(affinities) := {"allowed": {"affinities": affinities}}

requiring(affinities) := {"required": {"affinities": affinities}}

node_terms(patterns) := {"nodeSelectorTerms": [{"matchExpressions": patterns}]}

node(terms) := {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": terms}}}}

preferring(expressions) := {"affinity": {"nodeAffinity": {soft: [{"weight": 1, "preference": {"matchExpressions": expressions}}]}}}

expression(key, operator, values) := {"key": key, "operator": operator, "values": values}

one(given) := node([{"matchExpressions": [given]}])

test_node_expression_has_to_fit_one_pattern_whole if {
	spec := allowing({"nodeAffinities": {hard: node_terms([pattern])}})
	world.admits(spec, one(expression("region", "In", ["eu"])))
	world.admits(spec, one(expression("zone", "NotIn", ["us", "eu"])))
	path := "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]: "
	world.denies(spec, one(expression("arch", "In", ["eu"])), path)
	world.denies(spec, one(expression("region", "Exists", [])), path)
	world.denies(spec, one(expression("region", "In", ["eu", "asia"])), path)
	world.denies(spec, one({"key": "region", "operator": "In"}), path)
	world.denies(spec, one({"key": "region", "operator": "In", "values": null}), path)
	world.denies(spec, one({"operator": "In", "values": ["eu"]}), path)
}

test_patterns_are_not_combined if {
	other := {"keys": ["disk"], "operators": ["Exists"]}
	spec := allowing({"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": [pattern]}, {"matchExpressions": [other]}]}}})
	world.admits(spec, node([{"matchExpressions": [expression("region", "In", ["eu"])]}, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]))
	world.denies(spec, one({"key": "region", "operator": "Exists"}), "nodeSelectorTerms[0].matchExpressions[0]")
	world.denies(spec, one(expression("disk", "Exists", ["eu"])), "nodeSelectorTerms[0].matchExpressions[0]")
}

test_empty_list_of_a_pattern_allows_anything_and_an_absent_one_nothing if {
	spec := allowing({"nodeAffinities": {hard: node_terms([{"keys": [], "operators": [], "values": []}])}})
	world.admits(spec, one(expression("any", "Gt", ["5"])))
	every field in ["keys", "operators", "values"] {
		narrowed := allowing({"nodeAffinities": {hard: node_terms([object.remove(pattern, [field])])}})
		world.denies(narrowed, one(expression("region", "In", ["eu"])), "nodeSelectorTerms[0].matchExpressions[0]")
	}
}

test_hard_permission_is_no_soft_one if {
	world.denies(
		allowing({"nodeAffinities": {hard: node_terms([pattern])}}),
		preferring([expression("region", "In", ["eu"])]),
		`preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0]: {"key":"region","operator":"In","values":["eu"]} is not allowed`,
	)
	world.denies(
		allowing({"nodeAffinities": {soft: node_terms([pattern])}}),
		one(expression("region", "In", ["eu"])),
		`requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]: {"key":"region","operator":"In","values":["eu"]} is not allowed`,
	)
}

test_preferred_node_patterns_may_be_written_like_terms_or_like_preferences if {
	every half in [
		node_terms([pattern]),
		[{"matchExpressions": [pattern]}],
		[{"preference": {"matchExpressions": [pattern]}, "weight": 5}],
	] {
		spec := allowing({"nodeAffinities": {soft: half}})
		world.admits(spec, preferring([expression("region", "In", ["eu"])]))
		world.denies(spec, preferring([expression("region", "In", ["asia"])]), "[0].preference.matchExpressions[0]: ")
	}
}

test_empty_objects_allow_all_of_their_level if {
	all := {"affinity": {
		"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}, soft: [{"preference": {}}]},
		"podAffinity": {hard: [{"topologyKey": "a"}]},
		"podAntiAffinity": {soft: [{"podAffinityTerm": {"topologyKey": "a"}}]},
	}}
	world.admits(allowing({}), all)
	world.admits(allowing({"nodeAffinities": {}, "podAffinities": {}, "podAntiAffinities": {}}), all)
	world.admits(allowing({"nodeAffinities": {hard: {}, soft: {}}, "podAffinities": {hard: {}}, "podAntiAffinities": {soft: {}}}), all)
	world.denies(allowing({"nodeAffinities": {}, "podAffinities": {}}), all, "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm: ")
	world.denies(allowing({"nodeAffinities": {hard: {}}, "podAffinities": {}, "podAntiAffinities": {}}), all, "spec.affinity.nodeAffinity.preferred")
	world.denies({}, all, "spec.affinity.podAffinity.required")
}

test_pod_without_terms_needs_no_permission if {
	every affinity in [null, {}, {"nodeAffinity": {}}, {"nodeAffinity": null}, {"podAffinity": {hard: []}}, {"nodeAffinity": {soft: null, hard: null}}] {
		world.admits({}, {"affinity": affinity})
	}
}

test_term_without_expressions_needs_permission_all_the_same if {
	world.denies({}, node([{}]), "requiredDuringSchedulingIgnoredDuringExecution: a term without expressions is not allowed")
}

test_fields_are_judged_like_labels if {
	field := node([{"matchFields": [expression("metadata.name", "In", ["node-1"])]}])
	world.denies(allowing({"nodeAffinities": {hard: node_terms([pattern])}}), field, "nodeSelectorTerms[0].matchFields[0]")
	world.admits(allowing({"nodeAffinities": {hard: node_terms([{"keys": ["metadata.name"], "operators": ["In"], "values": []}])}}), field)
}

required_arch := {"keys": ["arch"], "operators": ["In"], "values": ["amd64", "arm64"]}

required_os := {"keys": ["os"], "operators": ["In"], "values": ["linux"]}

both := requiring({"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": [required_arch]}, {"matchExpressions": [required_os]}]}}})

test_every_required_pattern_needs_an_expression_in_every_term if {
	arch := expression("arch", "In", ["amd64"])
	os := expression("os", "In", ["linux"])
	world.admits(both, node([{"matchExpressions": [arch, os]}]))
	world.admits(both, node([{"matchExpressions": [arch, os]}, {"matchExpressions": [os, arch]}]))
	world.denies(both, node([{"matchExpressions": [arch]}, {"matchExpressions": [os]}]), "not every term has the required")
	world.denies(both, node([{"matchExpressions": [arch, os]}, {}]), "not every term has the required")
	world.denies(both, node([{"matchExpressions": [arch]}]), "not every term has the required")
	world.denies(both, {}, "no term has the required")
	world.denies(both, preferring([arch, os]), "no term has the required")
}

# Kubernetes follows any one of the terms, so the second is a way around the first.
test_required_pattern_is_not_evaded_by_a_second_term_that_is_allowed if {
	spec := object.union(both, allowing({"nodeAffinities": {hard: node_terms([pattern])}}))
	arch := expression("arch", "In", ["amd64"])
	os := expression("os", "In", ["linux"])
	zone := expression("zone", "In", ["eu"])
	world.denies(spec, node([{"matchExpressions": [arch, os]}, {"matchExpressions": [zone]}]), "not every term has the required")
	world.admits(spec, node([{"matchExpressions": [arch, os]}, {"matchExpressions": [zone, os, arch]}]))
}

test_preferred_patterns_are_required_of_some_term if {
	spec := requiring({"nodeAffinities": {soft: node_terms([required_arch])}})
	two := {"affinity": {"nodeAffinity": {soft: [{"weight": 1, "preference": {"matchExpressions": [given]}} |
		some given in [expression("arch", "In", ["amd64"]), expression("os", "In", ["linux"])]
	]}}}
	world.admits(object.union(spec, allowing({"nodeAffinities": {}})), two)
	world.denies(spec, preferring([expression("os", "In", ["linux"])]), "no term has the required")
}

arch_default := expression("arch", "In", ["amd64"])

os_default := expression("os", "In", ["linux"])

with_default(terms) := {"default": {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": terms}}}}}

made_terms(spec, pod) := world.patched(spec, pod).affinity.nodeAffinity[hard].nodeSelectorTerms

test_default_is_put_into_every_term_that_does_not_speak_of_its_keys if {
	spec := object.union_n([both, with_default([{"matchExpressions": [arch_default]}, {"matchExpressions": [os_default]}]), allowing({"nodeAffinities": {hard: node_terms([pattern])}})])
	zone := expression("zone", "In", ["eu"])
	arm := expression("arch", "In", ["arm64"])
	made_terms(spec, {}) == [{"matchExpressions": [arch_default]}, {"matchExpressions": [os_default]}]
	made_terms(spec, node([{"matchExpressions": [zone]}, {"matchExpressions": [arm]}])) == [
		{"matchExpressions": [zone, arch_default, os_default]},
		{"matchExpressions": [arm, os_default]},
	]
	once := world.patched(spec, node([{"matchExpressions": [zone]}]))
	world.patched(spec, once) == once
	world.patched(spec, world.patched(spec, {})) == world.patched(spec, {})
	made := world.patched(spec, {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": null}, soft: null}}}).affinity.nodeAffinity
	made[hard].nodeSelectorTerms == [{"matchExpressions": [arch_default]}, {"matchExpressions": [os_default]}]
}

# On its own, an arm64 term would be met by arm64 nodes of any system.
test_default_does_not_open_what_the_pod_says_itself if {
	spec := object.union(both, with_default([{"matchExpressions": [arch_default, os_default]}]))
	world.denies(spec, node([{"matchExpressions": [expression("arch", "In", ["s390x"])]}]), "matchExpressions[0]: ")
	world.denies(spec, node([{"matchExpressions": [expression("arch", "NotIn", ["amd64"])]}]), "matchExpressions[0]: ")
}

test_default_with_alternatives_leaves_one_term_for_each if {
	spec := object.union(with_default([{"matchExpressions": [expression("zone", "In", ["a"])]}, {"matchExpressions": [expression("zone", "In", ["b"])]}]), allowing({"nodeAffinities": {hard: node_terms([required_arch])}}))
	made_terms(spec, node([{"matchExpressions": [arch_default]}])) == [
		{"matchExpressions": [arch_default, expression("zone", "In", ["a"])]},
		{"matchExpressions": [arch_default, expression("zone", "In", ["b"])]},
	]
	made_terms(spec, node([{"matchExpressions": [expression("zone", "In", ["b"]), arch_default]}])) == [{"matchExpressions": [expression("zone", "In", ["b"]), arch_default]}]
}

# A term without expressions is met by no node; with the default in it, it would be met by some.
test_default_does_not_make_a_term_that_is_met_by_no_node_one_that_is if {
	spec := object.union(with_default([{"matchExpressions": [arch_default]}]), allowing({"nodeAffinities": {}}))
	made_terms(spec, node([{}, {"matchExpressions": [os_default]}])) == [{}, {"matchExpressions": [os_default, arch_default]}]
}

test_preferences_keep_no_required_default_away if {
	spec := object.union(with_default([{"matchExpressions": [arch_default]}]), allowing({"nodeAffinities": {soft: {}}}))
	made := world.patched(spec, preferring([os_default])).affinity.nodeAffinity
	made[hard].nodeSelectorTerms == [{"matchExpressions": [arch_default]}]
	count(made[soft]) == 1
}

test_default_is_allowed_whole_and_completed_where_it_is_in_part if {
	spec := with_default([{"matchExpressions": [arch_default, os_default]}])
	world.admits(spec, {})
	world.admits(spec, node([{"matchExpressions": [arch_default, os_default]}]))
	made_terms(spec, node([{"matchExpressions": [arch_default]}])) == [{"matchExpressions": [arch_default, os_default]}]
	world.denies(spec, preferring([arch_default]), "is not allowed")
}

test_default_with_label_keys_is_allowed_as_the_api_server_completes_it if {
	term := {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash"], "mismatchLabelKeys": ["team"]}
	completed := [expression("hash", "In", ["h1"]), expression("team", "NotIn", [""])]
	complete := json.patch(term, [{"op": "add", "path": "labelSelector/matchExpressions", "value": completed}])
	other := json.patch(term, [{"op": "add", "path": "labelSelector/matchExpressions", "value": [expression("hash", "In", ["h2"])]}])
	every half, items in {hard: [[term], [complete], [other]], soft: [[{"weight": 1, "podAffinityTerm": item}] | some item in [term, complete, other]]} {
		specs := {"p": {"allowed": {"schedulerNames": []}, "default": {"affinity": {"podAntiAffinity": {half: items[0]}}}}}
		found := [world.decided(specs, object.union(request, labels), {}).allowed |
			labels := {"object": {"metadata": {"labels": {"hash": "h1"}}}}
			some terms in items
			request := world.request("CREATE", {"affinity": {"podAntiAffinity": {half: terms}}})
		]
		found == [true, true, false]
	}
}

test_expressions_of_a_default_may_have_lists_of_one if {
	plural := {"keys": ["arch"], "operators": ["In"], "values": ["amd64"]}
	spec := {"default": {"affinity": {
		"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [plural]}]}},
		"podAffinity": {hard: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"keys": "a"}}}]},
	}}}
	made := world.patched(spec, {}).affinity
	made.nodeAffinity[hard].nodeSelectorTerms == [{"matchExpressions": [expression("arch", "In", ["amd64"])]}]
	made.podAffinity[hard][0].labelSelector.matchLabels == {"keys": "a"}
}

test_empty_requirement_wants_some_affinity_of_its_kind if {
	anti := {"affinity": {"podAntiAffinity": {hard: [{"topologyKey": "zone"}]}}}
	world.admits(requiring({"podAntiAffinities": {}}), anti)
	world.denies(requiring({"podAntiAffinities": {}}), {}, "spec.affinity.podAntiAffinity: is required")
	world.admits(requiring({"podAntiAffinities": {hard: {}}}), anti)
	world.denies(requiring({"podAntiAffinities": {soft: {}}}), {}, "preferredDuringSchedulingIgnoredDuringExecution: is required")
	world.admits(requiring({"nodeAffinities": {}}), node([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]))
}

test_nothing_required_allows_nothing if {
	world.admits(requiring({}), {})
	world.denies(requiring({}), one({"key": "a", "operator": "Exists"}), "is not allowed")
}

test_old_field_beside_allowed_is_the_same if {
	spec := {"allowedAffinities": {"nodeAffinities": {}}}
	world.admits(spec, one({"key": "a", "operator": "Exists"}))
	world.denies(spec, {"affinity": {"podAffinity": {hard: [{"topologyKey": "zone"}]}}}, "spec.affinity.podAffinity")
}
