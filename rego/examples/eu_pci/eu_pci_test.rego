package io.k8s.federation.admission_test

import data.io.k8s.federation.admission

preferences := "federation.kubernetes.io/replica-set-preferences"

jurisdiction := "policy.federation.alpha.kubernetes.io/eu-jurisdiction-required"

level := "policy.federation.alpha.kubernetes.io/pci-compliance-level"

# The request of the design proposal; what it elides is filled in.
request := {"input": {
	"apiVersion": "extensions/v1beta1",
	"kind": "ReplicaSet",
	"metadata": {
		"annotations": {
			"policy.federation.alpha.kubernetes.io/eu-jurisdiction-required": "true",
			"policy.federation.alpha.kubernetes.io/pci-compliance-level": "2",
		},
		"creationTimestamp": "2017-01-23T16:25:14Z",
		"generation": 1,
		"labels": {"app": "nginx-eu"},
		"name": "nginx-eu",
		"namespace": "default",
		"resourceVersion": "364993",
		"selfLink": "/apis/extensions/v1beta1/namespaces/default/replicasets/nginx-eu",
		"uid": "84fab96d-e188-11e6-ac83-0a580a54020e",
	},
	"spec": {
		"replicas": 4,
		"selector": {"matchLabels": {"app": "nginx-eu"}},
		"template": {
			"metadata": {"labels": {"app": "nginx-eu"}},
			"spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
		},
	},
}}

# The response of the design proposal.
response := {"result": {"annotations": {"federation.kubernetes.io/replica-set-preferences": {
	"clusters": {
		"gce-europe-west1": {"weight": 1},
		"gce-europe-west2": {"weight": 1},
	},
	"rebalance": true,
}}}}

cluster(labels) := {
	"apiVersion": "multicluster.x-k8s.io/v1alpha1",
	"kind": "ClusterProfile",
	"metadata": {"labels": labels},
}

profile(region, pci) := cluster({
	"topology.kubernetes.io/region": region,
	"compliance.example.com/pci-level": pci,
})

fleet := {"fleet": {
	"gce-europe-west1": profile("europe-west1", "2"),
	"gce-europe-west2": profile("europe-west2", "2"),
	"gce-us-east1": profile("us-east1", "3"),
	"gce-asia-east1": profile("asia-east1", "1"),
}}

replica_set(annotations) := {
	"apiVersion": "apps/v1",
	"kind": "ReplicaSet",
	"metadata": {"name": "nginx", "namespace": "default", "annotations": annotations},
}

# All that OPA would answer, whichever keys it has.
decide(resource, clusters) := {key: value |
	some key, value in admission with input as resource with data.kubernetes.clusters as clusters
}

chosen(resource, clusters) := {name |
	decision := decide(resource, clusters)
	decision.errors == set()
	some name, share in decision.annotations[preferences].clusters
	share == {"weight": 1}
}

refused(resource, clusters) := decision.errors if {
	decision := decide(resource, clusters)
	decision.annotations == {}
}

# Nothing but the annotations and the errors: no helper may show in the answer.
test_seed_request_gets_the_seed_response if {
	decide(request.input, fleet) == object.union(response.result, {"errors": set()})
}

test_placement_does_not_depend_on_namespaces_of_clusters if {
	spread := {
		"north": {"gce-europe-west1": fleet.fleet["gce-europe-west1"]},
		"south": {"gce-europe-west2": fleet.fleet["gce-europe-west2"]},
	}
	chosen(request.input, spread) == {"gce-europe-west1", "gce-europe-west2"}
}

test_replica_set_without_requirements_runs_anywhere if {
	every resource in [
		replica_set({}),
		replica_set({"team": "shop"}),
		{"kind": "ReplicaSet", "metadata": {"name": "nginx"}},
	] {
		chosen(resource, fleet) == {"gce-europe-west1", "gce-europe-west2", "gce-us-east1", "gce-asia-east1"}
	}
}

test_jurisdiction_alone_asks_for_the_region if {
	chosen(replica_set({jurisdiction: "true"}), fleet) == {"gce-europe-west1", "gce-europe-west2"}
}

test_jurisdiction_not_required_asks_for_nothing if {
	count(chosen(replica_set({jurisdiction: "false"}), fleet)) == 4
}

test_level_alone_asks_for_the_level_or_above if {
	chosen(replica_set({level: "2"}), fleet) == {"gce-europe-west1", "gce-europe-west2", "gce-us-east1"}
	chosen(replica_set({level: "3"}), fleet) == {"gce-us-east1"}
	count(chosen(replica_set({level: "0"}), fleet)) == 4
}

# As text, "10" sorts before "2".
test_levels_are_compared_as_numbers if {
	chosen(replica_set({level: "2"}), {"fleet": {"a": profile("europe-west1", "10")}}) == {"a"}
	refused(replica_set({level: "10"}), {"fleet": {"a": profile("europe-west1", "2")}}) != set()
}

test_cluster_level_missing_or_unreadable_is_zero if {
	every labels in [
		{},
		{"compliance.example.com/pci-level": ""},
		{"compliance.example.com/pci-level": "high"},
		{"compliance.example.com/pci-level": "2.5"},
		{"compliance.example.com/pci-level": "-2"},
		{"compliance.example.com/pci-level": "0x2"},
		{"compliance.example.com/pci-level": "02"},
	] {
		refused(replica_set({level: "1"}), {"fleet": {"a": cluster(labels)}}) == {concat("", [
			"no cluster meets the requirements (PCI level 1): ",
			"fleet/a: PCI level 0 is too low",
		])}
		chosen(replica_set({level: "0"}), {"fleet": {"a": cluster(labels)}}) == {"a"}
	}
}

test_cluster_without_a_region_is_outside_the_eu if {
	every unplaced in [cluster({}), {"metadata": {"name": "a"}}, {}] {
		refused(replica_set({jurisdiction: "true"}), {"fleet": {"a": unplaced}}) == {concat("", [
			"no cluster meets the requirements (EU region): ",
			`fleet/a: region "" is not in the EU`,
		])}
	}
}

test_region_that_only_resembles_the_eu_is_outside if {
	every region in {"europe", "europewest-1", "us-europe-1", "Europe-west1"} {
		refused(replica_set({jurisdiction: "true"}), {"fleet": {"a": profile(region, "2")}}) != set()
	}
}

test_unreadable_level_is_an_error if {
	every text in {"high", "", "2.5", "-1", "02", " 2", "two"} {
		refused(replica_set({level: text}), fleet) == {sprintf(
			"annotation policy.federation.alpha.kubernetes.io/pci-compliance-level must be a whole number, not %q",
			[text],
		)}
	}
}

test_unreadable_jurisdiction_is_an_error if {
	every text in {"yes", "", "True", "1"} {
		refused(replica_set({jurisdiction: text}), fleet) == {sprintf(
			`annotation policy.federation.alpha.kubernetes.io/eu-jurisdiction-required must be "true" or "false", not %q`,
			[text],
		)}
	}
}

# One readable requirement does not make up for an unreadable one.
test_every_unreadable_requirement_is_named if {
	count(refused(replica_set({jurisdiction: "yes", level: "high"}), fleet)) == 2
	count(refused(replica_set({jurisdiction: "true", level: "high"}), fleet)) == 1
	count(refused(replica_set({jurisdiction: "yes", level: "2"}), fleet)) == 1
}

test_no_fitting_cluster_says_why_for_each if {
	refused(replica_set({jurisdiction: "true", level: "3"}), fleet) == {concat("", [
		"no cluster meets the requirements (EU region, PCI level 3): ",
		`fleet/gce-asia-east1: PCI level 1 is too low, region "asia-east1" is not in the EU; `,
		"fleet/gce-europe-west1: PCI level 2 is too low; ",
		"fleet/gce-europe-west2: PCI level 2 is too low; ",
		`fleet/gce-us-east1: region "us-east1" is not in the EU`,
	])}
}

test_empty_fleet_is_an_error if {
	every clusters in [{}, {"fleet": {}}] {
		refused(request.input, clusters) == {concat("", [
			"no cluster meets the requirements (EU region, PCI level 2): ",
			"no cluster is registered",
		])}
		refused(replica_set({}), clusters) == {"no cluster meets the requirements (none): no cluster is registered"}
	}
}

test_absent_fleet_is_an_error if {
	decision := admission with input as request.input
	decision.annotations == {}
	count(decision.errors) == 1
}

test_name_of_a_fit_and_an_unfit_cluster_is_ruled_out if {
	twins := {
		"north": {"a": profile("europe-west1", "2")},
		"south": {"a": profile("us-east1", "2"), "b": profile("europe-west2", "2")},
	}
	chosen(request.input, twins) == {"b"}
	refused(request.input, {namespace: object.remove(clusters, ["b"]) |
		some namespace, clusters in twins
	}) == {`no cluster meets the requirements (EU region, PCI level 2): south/a: region "us-east1" is not in the EU`}
}

test_other_kinds_get_no_answer if {
	every kind in {"Deployment", "Pod", "ConfigMap"} {
		refused(object.union(request.input, {"kind": kind}), fleet) == set()
		refused({"kind": kind, "metadata": {"annotations": {level: "high"}}}, fleet) == set()
		refused(object.union(request.input, {"kind": kind}), {}) == set()
	}
}
