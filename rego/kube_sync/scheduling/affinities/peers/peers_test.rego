package kube_sync.scheduling.affinities.peers_test

import data.kube_sync.scheduling.world_test as world

hard := "requiredDuringSchedulingIgnoredDuringExecution"

soft := "preferredDuringSchedulingIgnoredDuringExecution"

pattern := {"topologyKeys": ["zone"], "matchExpressions": [{"keys": ["app"], "operators": ["In"], "values": ["shop", "bank"]}]}

term := {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "shop"}}}

spec(section, kind, half, given) := {section: {"affinities": {kind: {half: [given]}}}}

pod(kind, given) := {"affinity": {kind: {hard: [given]}}}

fits(change, given) if {
	world.admits(spec("allowed", "podAffinities", hard, object.union(pattern, change)), pod("podAffinity", given))
}

misfits(change, given) if world.denies(
	spec("allowed", "podAffinities", hard, object.union(pattern, change)),
	pod("podAffinity", given),
	"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]: ",
)

test_topology_key_has_to_be_listed if {
	fits({}, term)
	misfits({}, object.union(term, {"topologyKey": "host"}))
	misfits({}, object.remove(term, ["topologyKey"]))
	fits({"topologyKeys": []}, object.union(term, {"topologyKey": "host"}))
	misfits({"topologyKeys": null}, term)
}

test_every_requirement_of_the_selector_has_to_fit if {
	misfits({}, object.union(term, {"labelSelector": {"matchLabels": {"app": "else"}}}))
	misfits({}, object.union(term, {"labelSelector": {"matchLabels": {"app": "shop", "tier": "web"}}}))
	fits({}, {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["shop", "bank"]}]}})
	misfits({}, {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}})
	fits({"matchExpressions": []}, object.union(term, {"labelSelector": {"matchLabels": {"any": "thing"}}}))
	misfits({"matchExpressions": null}, term)
	fits({"matchExpressions": null}, {"topologyKey": "zone", "labelSelector": null})
}

test_label_keys_are_requirements_of_the_pods_own_labels if {
	fits({}, object.union(term, {"matchLabelKeys": ["app"]}))
	misfits({}, object.union(term, {"matchLabelKeys": ["tier"]}))
	misfits({}, object.union(term, {"mismatchLabelKeys": ["app"]}))
	unlike := {"keys": ["app"], "operators": ["In", "NotIn"], "values": ["shop"]}
	fits({"matchExpressions": [unlike]}, object.union(term, {"mismatchLabelKeys": ["app"]}))
}

test_namespaces_are_the_pods_own_unless_listed if {
	fits({}, object.union(term, {"namespaces": ["team-a"]}))
	fits({}, object.union(term, {"namespaces": null, "namespaceSelector": null}))
	misfits({}, object.union(term, {"namespaces": ["team-a", "team-b"]}))
	fits({"namespaces": ["team-a", "team-b"]}, object.union(term, {"namespaces": ["team-b"]}))
	fits({"namespaces": []}, object.union(term, {"namespaces": ["team-b"]}))
	misfits({"namespaces": ["team-b"]}, term)
}

test_namespace_selector_needs_all_namespaces if {
	every selector in [{}, {"matchLabels": {"a": "b"}}] {
		misfits({}, object.union(term, {"namespaceSelector": selector}))
		misfits({"namespaces": ["team-a"]}, object.union(term, {"namespaceSelector": selector, "namespaces": ["team-a"]}))
		fits({"namespaces": []}, object.union(term, {"namespaceSelector": selector}))
	}
}

test_kinds_and_halves_are_apart if {
	allowed := spec("allowed", "podAntiAffinities", soft, pattern)
	world.admits(allowed, {"affinity": {"podAntiAffinity": {soft: [{"weight": 1, "podAffinityTerm": term}]}}})
	world.denies(allowed, {"affinity": {"podAntiAffinity": {hard: [term]}}}, "podAntiAffinity.required")
	world.denies(allowed, {"affinity": {"podAffinity": {soft: [{"podAffinityTerm": term}]}}}, "podAffinity.preferred")
	world.denies(allowed, {"affinity": {"podAntiAffinity": {soft: [{"podAffinityTerm": null}]}}}, "podAntiAffinity.preferred")
}

test_required_pattern_needs_a_term_that_has_what_it_says if {
	required := spec("required", "podAntiAffinities", hard, pattern)
	world.admits(required, pod("podAntiAffinity", term))
	world.denies(required, {}, "no term has the required")
	world.denies(required, pod("podAntiAffinity", {"topologyKey": "zone"}), "no term has the required")
	world.denies(required, pod("podAffinity", term), "no term has the required")
	free := spec("required", "podAntiAffinities", hard, {"topologyKeys": ["zone"], "matchExpressions": []})
	world.admits(free, pod("podAntiAffinity", {"topologyKey": "zone"}))
}
