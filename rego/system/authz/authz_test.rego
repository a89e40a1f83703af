package system.authz_test

import data.system.authz

access := {
	"tokens": {
		crypto.sha256("replicator-token"): "replicator",
		crypto.sha256("admission-token"): "admission",
		crypto.sha256("metrics-token"): "metrics",
		crypto.sha256("other-token"): "other",
	},
	"roots": ["kubernetes", "kube_sync"],
	"decisions": ["io/k8s/federation/admission"],
}

request(method, path) := {
	"method": method,
	"path": split(path, "/"),
	"params": {},
	"headers": {},
}

permitted(token, method, path) if {
	authz.allow with input as object.union(request(method, path), {"identity": token})
		with data.system.access as access
}

test_health_is_open_to_anyone if {
	authz.allow with input as request("GET", "health") with data.system.access as access
	authz.allow with input as object.union(request("GET", "health"), {"params": {"bundles": [""]}})
		with data.system.access as access
	authz.allow with input as request("GET", "health") with data.system.access as {}
	permitted("stranger-token", "GET", "health")
}

test_health_is_open_to_get_only if {
	not permitted("replicator-token", "PUT", "health")
	not permitted("stranger-token", "GET", "health/live")
}

test_replicator_reads_and_queries_data if {
	every method in {"GET", "POST"} {
		permitted("replicator-token", method, "v1/data")
		permitted("replicator-token", method, "v1/data/kube_sync/epoch")
		permitted("replicator-token", method, "v1/data/system/bundles")
		permitted("replicator-token", method, "v1/data/kube_sync/batch/budget")
	}
}

test_replicator_puts_data_below_its_roots if {
	permitted("replicator-token", "PUT", "v1/data/kube_sync/epoch")
	permitted("replicator-token", "PUT", "v1/data/kubernetes/clusters/fleet/gce-europe-west1")
}

test_replicator_puts_data_nowhere_else if {
	every path in {
		"v1/data",
		"v1/data/",
		"v1/data/kubernetes",
		"v1/data/kubernetes/",
		"v1/data/kubernetes//",
		"v1/data//kubernetes/clusters",
		"v1/data/system/access",
		"v1/data/kubernetesque/clusters",
		"v0/data/kubernetes/clusters",
	} {
		not permitted("replicator-token", "PUT", path)
	}
}

only_if_absent(path) := object.union(
	request("PUT", path),
	{"identity": "replicator-token", "headers": {"If-None-Match": ["*"]}},
)

test_replicator_puts_data_of_a_config_map_where_nothing_is if {
	authz.allow with input as only_if_absent("v1/data/shop/limits") with data.system.access as access
	not permitted("replicator-token", "PUT", "v1/data/shop/limits")
	every path in {"v1/data/shop", "v1/data/shop/limits/a", "v1/policies/a/b", "v1/data//limits"} {
		not authz.allow with input as only_if_absent(path) with data.system.access as access
	}
}

test_nobody_else_puts_data_where_nothing_is if {
	asked := object.union(only_if_absent("v1/data/shop/limits"), {"identity": "admission-token"})
	not authz.allow with input as asked with data.system.access as access
}

# An encoded slash stays inside its segment, as in OPA's own reading of a data path.
test_replicator_put_with_an_encoded_slash_is_no_root if {
	not authz.allow with data.system.access as access with input as {
		"identity": "replicator-token",
		"method": "PUT",
		"path": ["v1", "data", "kubernetes/clusters", "fleet"],
	}
}

test_replicator_patches_at_the_top_only if {
	permitted("replicator-token", "PATCH", "v1/data")
	not permitted("replicator-token", "PATCH", "v1/data/kubernetes")
	not permitted("replicator-token", "PATCH", "v1/policies")
}

test_replicator_deletes_no_data if {
	not permitted("replicator-token", "DELETE", "v1/data")
	not permitted("replicator-token", "DELETE", "v1/data/kubernetes/clusters")
}

test_replicator_keeps_policies if {
	permitted("replicator-token", "GET", "v1/policies")
	every method in {"GET", "PUT", "DELETE"} {
		permitted("replicator-token", method, "v1/policies/kube-federation-scheduling-policy/eu-pci/policy.rego")
	}
}

test_replicator_writes_no_file_loaded_policy if {
	every method in {"PUT", "DELETE"} {
		every id in {
			"authz.rego",
			"./authz.rego",
			"opa/authz.rego",
			"etc/opa/authz.rego",
			"rego/system/authz/authz.rego",
			"/bundle/bundle/authz.rego",
			"other.rego",
			"a//b.rego",
			"a/b/",
			"",
		} {
			not permitted("replicator-token", method, concat("/", ["v1/policies", id]))
		}
	}
}

test_replicator_reads_a_file_loaded_policy if {
	permitted("replicator-token", "GET", "v1/policies/authz.rego")
}

test_replicator_reads_how_opa_gets_its_policies if {
	permitted("replicator-token", "GET", "v1/config")
	every method in {"POST", "PUT", "PATCH", "DELETE"} {
		not permitted("replicator-token", method, "v1/config")
	}
	not permitted("admission-token", "GET", "v1/config")
	not permitted("metrics-token", "GET", "v1/config")
}

test_replicator_has_nothing_else if {
	every method in {"GET", "POST", "PUT", "PATCH", "DELETE"} {
		every path in {"", "v1/query", "v1/compile", "v1/compile/io/k8s", "v1/config/x", "v1/status", "metrics", "v0/data"} {
			not permitted("replicator-token", method, path)
		}
	}
}

test_admission_asks_for_its_decision if {
	permitted("admission-token", "POST", "v1/data/io/k8s/federation/admission")
}

test_admission_asks_for_the_decision_of_either_side_of_a_canary if {
	permitted("admission-token", "POST", "v1/data/kube_sync_stage/entry/answer")
	not permitted("admission-token", "GET", "v1/data/kube_sync_stage/entry/answer")
}

test_admission_asks_for_the_decision_with_the_load_that_it_was_made_on if {
	permitted("admission-token", "POST", "v1/data/kube_sync/batch/reviewed")
	not permitted("admission-token", "GET", "v1/data/kube_sync/batch/reviewed")
	not permitted("admission-token", "POST", "v1/data/kube_sync/batch/decisions")
	not permitted("admission-token", "POST", "v1/data/kube_sync/epoch")
}

test_admission_has_nothing_else if {
	every path in {
		"",
		"v1/data",
		"v1/data/io/k8s/federation",
		"v1/data/io/k8s/federation/admission/",
		"v1/data/io/k8s/federation/admission/errors",
		"v0/data/io/k8s/federation/admission",
		"v1/data/kubernetes/clusters",
		"v1/data/kube_sync_stage",
		"v1/data/kube_sync_stage/canary/io/k8s/federation/admission",
		"v1/query",
		"v1/compile",
		"v1/policies",
	} {
		not permitted("admission-token", "POST", path)
	}
	every method in {"GET", "PUT", "PATCH", "DELETE"} {
		not permitted("admission-token", method, "v1/data/io/k8s/federation/admission")
	}
	not permitted("admission-token", "GET", "metrics")
	not permitted("admission-token", "PATCH", "v1/data")
}

test_metrics_reads_metrics if {
	permitted("metrics-token", "GET", "metrics")
}

test_metrics_has_nothing_else if {
	not permitted("metrics-token", "POST", "metrics")
	not permitted("metrics-token", "GET", "v1/data")
	not permitted("metrics-token", "POST", "v1/data/io/k8s/federation/admission")
	not permitted("metrics-token", "GET", "v1/policies")
}

test_unknown_token_is_refused if {
	not permitted("stranger-token", "GET", "v1/data")
	not permitted("stranger-token", "POST", "v1/data/io/k8s/federation/admission")
	not permitted("stranger-token", "GET", "metrics")
}

test_unknown_role_is_refused if {
	not permitted("other-token", "GET", "v1/data")
	not permitted("other-token", "GET", "metrics")
}

test_missing_identity_is_refused if {
	not authz.allow with input as request("GET", "v1/data") with data.system.access as access
}

test_empty_identity_is_refused if {
	not authz.allow with input as object.union(request("GET", "v1/data"), {"identity": ""})
		with data.system.access as {"tokens": {crypto.sha256(""): "replicator"}}
}

test_hash_in_place_of_the_token_is_refused if {
	not permitted(crypto.sha256("replicator-token"), "GET", "v1/data")
}

test_everything_is_refused_without_an_access_list if {
	not authz.allow with input as object.union(request("GET", "v1/data"), {"identity": "replicator-token"})
		with data.system.access as {}
}
