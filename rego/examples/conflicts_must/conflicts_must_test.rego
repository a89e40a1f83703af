package io.k8s.federation.admission_test

import data.io.k8s.federation.admission

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

clusters_in(regions) := {"fleet": {name: {"metadata": {"labels": {"topology.kubernetes.io/region": region}}} |
	some name, region in regions
}}

fleet := clusters_in({
	"gce-europe-west1": "europe-west1",
	"gce-europe-west2": "europe-west2",
	"gce-us-east1": "us-east1",
	"gce-asia-east1": "asia-east1",
})

# The seed's request, with the developer's own preferences on it.
requesting(preferences) := object.union(
	request.input,
	{"metadata": {"annotations": {"federation.kubernetes.io/replica-set-preferences": preferences}}},
)

# All that OPA would answer, whichever keys it has.
decide(resource, clusters) := {key: value |
	some key, value in admission with input as resource with data.kubernetes.clusters as clusters
}

# What must be used is the same whoever asks for what.
test_policy_wins_over_the_developer if {
	every preferences in [
		{"clusters": {"gce-us-east1": {"weight": 1}}, "rebalance": false},
		{"clusters": {"gce-europe-west1": {"weight": 9}}},
		{"clusters": {}},
		`{"clusters": {"gce-us-east1": {"weight": 1}}}`,
		"not JSON",
		null,
	] {
		decide(requesting(preferences), fleet) == object.union(response.result, {"errors": set()})
	}
}

test_no_request_gets_the_seed_response if {
	decide(request.input, fleet) == object.union(response.result, {"errors": set()})
}

test_nothing_to_run_on_is_an_error if {
	every clusters in [{}, {"fleet": {}}, clusters_in({"gce-us-east1": "us-east1"}), {"fleet": {"a": {}}}] {
		decide(request.input, clusters) == {
			"annotations": {},
			"errors": {"no cluster of the fleet may be used"},
		}
	}
}

test_absent_fleet_is_an_error if {
	admission.errors == {"no cluster of the fleet may be used"} with input as request.input
}

test_other_kinds_get_no_answer if {
	every kind in {"Deployment", "Pod"} {
		every clusters in [fleet, {}] {
			decide(object.union(request.input, {"kind": kind}), clusters) == {
				"annotations": {},
				"errors": set(),
			}
		}
	}
}
