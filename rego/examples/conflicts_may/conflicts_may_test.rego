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

answer(preferences, messages) := {
	"annotations": {"federation.kubernetes.io/replica-set-preferences": preferences},
	"errors": messages,
}

# The response of the design proposal with errors; what it elides is filled in.
response := {"result": {
	"errors": ["requested replica-set-preferences includes invalid clusters"],
	"annotations": {"federation.kubernetes.io/replica-set-preferences": {
		"clusters": {"gce-europe-west1": {"weight": 3}},
		"rebalance": true,
	}},
}}

some_invalid := {
	"clusters": {
		"gce-europe-west1": {"weight": 3},
		"gce-us-east1": {"weight": 1},
	},
	"rebalance": true,
}

# Compared as JSON, which turns the set of errors into the array that the response shows.
test_invalid_clusters_get_the_seed_response_with_errors if {
	decision := decide(requesting(some_invalid), fleet)
	json.unmarshal(json.marshal({"result": decision})) == response
}

test_request_as_json_text_is_read_like_an_object if {
	decide(requesting(json.marshal(some_invalid)), fleet) == decide(requesting(some_invalid), fleet)
}

test_valid_clusters_keep_the_weights_of_the_developer if {
	preferences := {
		"clusters": {
			"gce-europe-west1": {"weight": 3, "minReplicas": 1},
			"gce-europe-west2": {"weight": 5, "maxReplicas": 9},
		},
		"rebalance": false,
	}
	decide(requesting(preferences), fleet) == answer(preferences, set())
	decide(requesting(json.marshal(preferences)), fleet) == answer(preferences, set())
}

test_one_valid_cluster_is_enough if {
	preferences := {"clusters": {"gce-europe-west2": {"weight": 1}}}
	decide(requesting(preferences), fleet) == answer(preferences, set())
}

test_no_request_is_given_all_that_may_be_used if {
	preferences := {
		"clusters": {
			"gce-europe-west1": {"weight": 1},
			"gce-europe-west2": {"weight": 1},
		},
		"rebalance": true,
	}
	every resource in [request.input, {"kind": "ReplicaSet"}, {"kind": "ReplicaSet", "metadata": {"name": "nginx"}}] {
		decide(resource, fleet) == answer(preferences, set())
	}
}

test_star_stands_for_the_permitted_clusters_not_named if {
	preferences := {"clusters": {
		"*": {"weight": 1, "maxReplicas": 2},
		"gce-europe-west1": {"weight": 3},
	}}
	decide(requesting(preferences), fleet) == answer(
		{"clusters": {
			"gce-europe-west1": {"weight": 3},
			"gce-europe-west2": {"weight": 1, "maxReplicas": 2},
		}},
		set(),
	)
}

test_cluster_that_is_not_registered_is_invalid if {
	preferences := {"clusters": {
		"gce-europe-west1": {"weight": 1},
		"gce-europe-west9": {"weight": 1},
	}}
	decide(requesting(preferences), fleet) == answer(
		{"clusters": {"gce-europe-west1": {"weight": 1}}},
		{"requested replica-set-preferences includes invalid clusters"},
	)
}

test_only_invalid_clusters_leave_no_annotation if {
	decide(requesting({"clusters": {"gce-us-east1": {"weight": 1}}}), fleet) == {
		"annotations": {},
		"errors": {
			"requested replica-set-preferences includes invalid clusters",
			"no cluster of requested replica-set-preferences may be used",
		},
	}
}

test_nothing_to_run_on_is_an_error if {
	nowhere := {
		"annotations": {},
		"errors": {"no cluster of requested replica-set-preferences may be used"},
	}
	decide(requesting({"clusters": {}}), fleet) == nowhere
	every clusters in [{}, {"fleet": {}}, clusters_in({"gce-us-east1": "us-east1"}), {"fleet": {"a": {}}}] {
		decide(request.input, clusters) == nowhere
	}
}

test_absent_fleet_is_an_error if {
	admission.errors == {"no cluster of requested replica-set-preferences may be used"} with input as request.input
}

test_unreadable_request_is_an_error if {
	every preferences in ["", "gce-europe-west1", "{", "null", "[]", "{}", `{"clusters": []}`, [], {}, 1, null] {
		decide(requesting(preferences), fleet) == {
			"annotations": {},
			"errors": {"requested replica-set-preferences cannot be read"},
		}
	}
}

test_other_kinds_get_no_answer if {
	every kind in {"Deployment", "Pod"} {
		every clusters in [fleet, {}] {
			decide(object.union(requesting(some_invalid), {"kind": kind}), clusters) == {
				"annotations": {},
				"errors": set(),
			}
		}
	}
}
