package placement_test

import data.io.k8s.federation.admission
import data.kube_sync_parameters
import data.placement.parameters

requested_key := "federation.kubernetes.io/replica-set-preferences"

clusters := {"fleet": {"paris": {}, "milan": {}, "tokyo": {}}}

workload(annotations) := {
	"kind": "ReplicaSet",
	"metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
}

# Packs of the test: tokyo is opposed, paris needs milan.
opposing := {
	"a": {"objections": {"tokyo": {"far"}}},
	"b": {"companions": {"paris": {"milan"}}},
}

decided(resource, packs, settings) := decision if {
	decision := admission with input as resource
		with data.placement.packs as packs
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"placement": settings}
}

placed(resource, packs, settings) := decided(resource, packs, settings).annotations[requested_key].clusters

refused(resource, packs, settings) := decided(resource, packs, settings).errors

wishes(names) := workload({requested_key: json.marshal({"clusters": {name: {"weight": 2} | some name in names}})})

test_without_packs_every_cluster_is_used if {
	placed(workload({}), {}, {"style": "must"}) == {name: {"weight": 1} | some name, _ in clusters.fleet}
}

test_every_pack_may_object if {
	placed(workload({}), opposing, {}) == {"milan": {"weight": 1}, "paris": {"weight": 1}}
}

test_a_cluster_is_not_used_without_its_companion if {
	packs := object.union(opposing, {"c": {"objections": {"milan": {"full"}}}})
	refused(workload({}), packs, {}) == {concat("", [
		"no cluster may be used: milan: full; ",
		"paris: it needs milan, which may not be used; tokyo: far",
	])}
}

test_companions_of_companions_are_needed_too if {
	packs := {
		"a": {"companions": {"paris": {"milan"}}},
		"b": {"companions": {"milan": {"tokyo"}}, "objections": {"tokyo": {"full"}}},
	}
	refused(workload({}), packs, {}) == {concat("", [
		"no cluster may be used: milan: it needs tokyo, which may not be used; ",
		"paris: it needs tokyo, which may not be used; tokyo: full",
	])}
}

test_other_kinds_are_not_decided_on if {
	decided({"kind": "Pod"}, opposing, {}) == {"annotations": {}, "errors": set()}
	placed({"kind": "Deployment"}, {}, {"kinds": ["Deployment"]}) != {}
}

test_kinds_are_compared_without_regard_to_case if {
	every kind in ["Replicaset", "replicaset", "ReplicaSet"] {
		placed(workload({}), {}, {"kinds": [kind]}) == {name: {"weight": 1} | some name, _ in clusters.fleet}
	}
	decided({"kind": "RayCluster"}, {}, {"kinds": ["Raycluster"]}).annotations != {}
}

said_of_kinds := {
	"kinds must be of type array, and is of type string": "ReplicaSet",
	"kinds must name one kind or more": [],
	"kinds must be kinds as ReplicaSet, and 1 is none": ["ReplicaSet", 1],
	"kinds must be kinds as ReplicaSet, and replicasets is none": ["replicasets"],
	"kinds must be kinds as ReplicaSet, and Deployments is none": ["Deployments", "ReplicaSet"],
	"kinds must be kinds as ReplicaSet, and deployment.apps is none": ["deployment.apps"],
	"kinds must be kinds as ReplicaSet, and  is none": [""],
}

test_kinds_that_are_wrong_turn_no_pack_off if {
	every problem, kinds in said_of_kinds {
		every kind in ["ReplicaSet", "Deployment"] {
			refused({"kind": kind}, {}, {"kinds": kinds}) == {sprintf(
				"ConfigMap kube-federation-scheduling-policy/placement: %s",
				[problem],
			)}
		}
	}
}

test_regions_have_equal_shares if {
	packs := {"a": {"regions": {"paris": {"eu"}, "milan": {"eu"}, "tokyo": {"asia"}}}}
	placed(workload({}), packs, {}) == {
		"milan": {"weight": 420},
		"paris": {"weight": 420},
		"tokyo": {"weight": 840},
	}
}

test_every_cluster_of_a_large_region_gets_replicas if {
	many := {sprintf("c%d", [number]) | some number in numbers.range(1, 841)}
	decision := admission with input as workload({})
		with data.placement.packs as {"a": {"regions": {name: {"eu"} | some name in many}}}
		with data.kubernetes.clusters as {"fleet": object.union({name: {} | some name in many}, {"tokyo": {}})}
		with data["kube-federation-scheduling-policy"] as {"placement": {}}
	decision.annotations[requested_key].clusters.c1 == {"weight": 1}
}

test_too_few_regions_are_refused if {
	packs := {"a": {"regions": {"paris": {"eu"}, "milan": {"eu"}}, "minimum_regions": 2}}
	refused(workload({}), packs, {}) == {"the placement needs 2 regions, and has 1 (eu)"}
}

test_problems_of_packs_are_errors if {
	packs := {"a": {"problems": {"no such thing"}}, "b_c": {"parameter_problems": {"x is no parameter"}}}
	refused(workload({}), packs, {}) == {
		"no such thing",
		"ConfigMap kube-federation-scheduling-policy/b-c: x is no parameter",
	}
}

test_developer_is_not_asked_where_clusters_must_be_used if {
	placed(wishes({"paris"}), {}, {"style": "must"}) == placed(workload({}), {}, {"style": "must"})
}

test_developer_chooses_among_clusters_that_may_be_used if {
	placed(wishes({"milan"}), opposing, {"style": "may"}) == {"milan": {"weight": 2}}
	placed(workload({}), opposing, {"style": "may"}) == {"milan": {"weight": 1}, "paris": {"weight": 1}}
}

test_request_may_be_an_object if {
	request := workload({requested_key: {"clusters": {"*": {"weight": 3}}}})
	placed(request, opposing, {"style": "may"}) == {"milan": {"weight": 3}, "paris": {"weight": 3}}
}

test_request_for_what_may_not_be_used_is_refused if {
	refused(wishes({"tokyo", "milan", "rome"}), opposing, {"style": "may"}) == {
		"tokyo was requested and may not be used: far",
		"rome was requested and may not be used: there is no such cluster",
	}
}

test_request_without_a_companion_is_refused if {
	refused(wishes({"paris"}), opposing, {"style": "may"}) == {"paris was requested without milan, which it needs"}
}

requested(preferences) := workload({requested_key: {"clusters": preferences}})

# What gives a cluster no replica.
nothing := [
	{"weight": 0},
	{"weight": 0, "minReplicas": 0},
	{"weight": 0.0, "maxReplicas": 3},
	{"weight": null},
	{"weight": 2, "maxReplicas": 0},
	{"minReplicas": 2, "maxReplicas": 0},
]

test_companion_without_replicas_is_none if {
	every entry in nothing {
		every other in ["milan", "*"] {
			refused(requested({"paris": {"weight": 1}, other: entry}), opposing, {"style": "may"}) == {"paris was requested without milan, which it needs"}
		}
	}
	every entry in [{}, {"weight": 0, "minReplicas": 1}, {"maxReplicas": 1}, true] {
		refused(requested({"paris": {"weight": 1}, "milan": entry}), opposing, {"style": "may"}) == set()
	}
}

test_cluster_without_replicas_needs_no_companion if {
	preferences := {"milan": {"weight": 1}, "paris": {"weight": 0}}
	placed(requested(preferences), opposing, {"style": "may"}) == preferences
	refused(requested(preferences), opposing, {"style": "may"}) == set()
}

test_region_without_replicas_is_none if {
	packs := {"a": {"regions": {"paris": {"eu"}, "tokyo": {"asia"}}, "minimum_regions": 2}}
	every entry in nothing {
		refused(requested({"paris": {"weight": 1}, "tokyo": entry}), packs, {"style": "may"}) == {"the placement needs 2 regions, and has 1 (eu)"}
	}
}

test_request_that_gives_no_replica_is_refused if {
	every preferences in [{}, {"paris": {"weight": 0}}, {"*": {"maxReplicas": 0}}] {
		decided(requested(preferences), opposing, {"style": "may"}) == {
			"annotations": {},
			"errors": {"the request gives no replica to a cluster that may be used"},
		}
	}
}

test_request_that_cannot_be_read_is_refused if {
	every text in ["paris", "[]", `{"clusters": []}`] {
		refused(workload({requested_key: text}), {}, {"style": "may"}) == {"requested replica-set-preferences cannot be read"}
	}
}

test_fleet_without_clusters_is_an_error if {
	decision := admission with input as workload({})
		with data.placement.packs as {}
		with data["kube-federation-scheduling-policy"] as {"placement": {}}
	decision.errors == {"no cluster may be used: no cluster is registered"}
}

test_parameters_that_are_wrong_are_errors_and_named if {
	refused(workload({}), {}, {"styel": "may"}) == {concat("", [
		"ConfigMap kube-federation-scheduling-policy/placement: ",
		"styel is no parameter; there are kinds, style",
	])}
	refused(workload({}), {}, {"style": "might"}) == {concat("", [
		"ConfigMap kube-federation-scheduling-policy/placement: ",
		"style must be must or may, and is might",
	])}
	refused(workload({}), {}, {"style": 1}) != set()
	problems := kube_sync_parameters.problems with data["kube-federation-scheduling-policy"] as {"placement": {"styel": "may"}}
		with data.placement.packs as {"b_c": {"parameter_problems": {"x"}}}
	problems == {
		"kube-federation-scheduling-policy/placement": {"styel is no parameter; there are kinds, style"},
		"kube-federation-scheduling-policy/b-c": {"x"},
	}
}

test_notes_on_parameters_are_named_and_no_errors if {
	packs := {"b_c": {"parameter_notes": {"x may be wrong"}}}
	refused(workload({}), packs, {}) == set()
	problems := kube_sync_parameters.problems with data["kube-federation-scheduling-policy"] as {"placement": {}}
		with data.placement.packs as packs
	problems == {"kube-federation-scheduling-policy/b-c": {"x may be wrong"}}
	both := object.union(packs, {"b_c": {"parameter_problems": {"y is wrong"}}})
	refused(workload({}), both, {}) == {"ConfigMap kube-federation-scheduling-policy/b-c: y is wrong"}
}

missing := {concat("", [
	"ConfigMap kube-federation-scheduling-policy/placement: ",
	"there are no parameters: apply parameters.yaml",
])}

test_without_parameters_all_is_refused if {
	decision := admission with input as workload({})
		with data.placement.packs as {}
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {}
	decision.errors == missing

	# The kinds that the parameters named are not known any more.
	other := admission with input as {"kind": "Deployment"}
		with data.placement.packs as {}
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {}
	other.errors == missing
}

test_parameters_have_types if {
	parameters.problems({"a": 1, "b": "x"}, {"a": "number", "b": "string"}) == set()
	parameters.problems({"a": "1"}, {"a": "number"}) == {"a must be of type number, and is of type string"}
	parameters.problems([], {}) == {"must be of type object, and is of type array"}
	parameters.whole_number("10") == 10
	every text in ["01", "-1", "1.5", "", "x"] {
		not parameters.whole_number(text)
	}
}
