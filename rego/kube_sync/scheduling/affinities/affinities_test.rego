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

test_node_of_a_daemonsets_pod_needs_no_permission if {
	bound := world.request("CREATE", node([{"matchFields": [expression("metadata.name", "In", ["node-1"])]}]))
	controller := {"userInfo": {"username": "system:serviceaccount:kube-system:daemon-set-controller"}}
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	world.decided(specs, object.union(bound, controller), {}).allowed
	not world.decided(specs, bound, {}).allowed
	own := world.request("CREATE", node([{"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchFields": [expression("metadata.name", "In", ["node-1"])]}]))
	not world.decided(specs, object.union(own, controller), {}).allowed

	# Of a pod that is there, what it has already was judged then.
	owned := {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}}
	update := object.union(bound, {"operation": "UPDATE"})
	world.decided(specs, object.union(update, {"oldObject": bound.object}), {}).allowed
	other := world.request("UPDATE", node([{"matchFields": [expression("metadata.name", "In", ["master-1"])]}]))
	not world.decided(specs, object.union(other, {"oldObject": bound.object}), {}).allowed
	not world.decided(specs, object.union(update, {"oldObject": owned, "object": owned}), {}).allowed
}

required_arch := {"keys": ["arch"], "operators": ["In"], "values": ["amd64", "arm64"]}

required_os := {"keys": ["os"], "operators": ["In"], "values": ["linux"]}

both := requiring({"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": [required_arch]}, {"matchExpressions": [required_os]}]}}})

test_every_required_pattern_needs_an_expression_in_some_term if {
	arch := expression("arch", "In", ["amd64"])
	os := expression("os", "In", ["linux"])
	world.admits(both, node([{"matchExpressions": [arch, os]}]))
	world.admits(both, node([{"matchExpressions": [arch]}, {"matchExpressions": [os]}]))
	world.denies(both, node([{"matchExpressions": [arch]}]), "no term has the required")
	world.denies(both, {}, "no term has the required")
	world.denies(both, preferring([arch, os]), "no term has the required")
}

test_strict_mode_wants_every_term_to_have_them if {
	arch := expression("arch", "In", ["amd64"])
	os := expression("os", "In", ["linux"])
	specs := {"p": object.union(both, {"allowed": {"schedulerNames": []}})}
	strict := {"strict_affinity": true}
	world.decided(specs, world.request("CREATE", node([{"matchExpressions": [arch, os]}])), strict).allowed
	apart := world.decided(specs, world.request("CREATE", node([{"matchExpressions": [arch]}, {"matchExpressions": [os]}])), strict)
	apart.allowed == false
	some reason in apart.reasons
	contains(reason, "not every term has the required")
	world.decided(specs, world.request("CREATE", {}), strict).allowed == false
}

test_default_is_allowed_whole_and_not_in_part if {
	arch := expression("arch", "In", ["amd64"])
	os := expression("os", "In", ["linux"])
	spec := {"default": {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [arch, os]}]}}}}}
	world.admits(spec, {})
	world.admits(spec, node([{"matchExpressions": [arch, os]}]))
	world.denies(spec, node([{"matchExpressions": [arch]}]), "nodeSelectorTerms[0].matchExpressions[0]: ")
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
