# METADATA
# title: Authorization
# description: |
#   What each bearer of a token may ask of OPA's own API. Roles are found by the SHA-256 of the
#   token, so that no token is ever kept in OPA. Paths are compared segment by segment, as OPA
#   hands them over after decoding them.
#
#   These rules see no body but that of a POST, so they cannot tell what a write carries. Only OPA
#   itself can keep a write out of `system`, if this is loaded as a bundle: see rego/README.md.
package system.authz

# METADATA
# description: True when the caller may make this request; whoever is not known may ask for health only
default allow := false

allow if {
	input.method == "GET"
	input.path == ["health"]
}

allow if {
	_role == "replicator"
	_may_replicate
}

allow if {
	_role == "admission"
	_may_ask_for_a_decision
}

allow if {
	_role == "metrics"
	input.method == "GET"
	input.path == ["metrics"]
}

_role := data.system.access.tokens[crypto.sha256(input.identity)] if {
	# A token file that was empty at deploy time must not open the door to an empty token.
	input.identity != ""
}

_may_replicate if {
	input.method in {"GET", "POST"}
	array.slice(input.path, 0, 2) == ["v1", "data"]
}

_may_replicate if {
	input.method == "PUT"
	_below_a_root
}

# ConfigMaps with data lie at <namespace>/<name>: an empty object may be put where nothing is, which
# changes nothing that anybody relies on.
_may_replicate if {
	input.method == "PUT"
	count(input.path) == 4
	array.slice(input.path, 0, 2) == ["v1", "data"]
	input.headers["If-None-Match"] == ["*"]
	not "" in input.path
}

# One PATCH changes documents below several roots in one transaction, so it is made at the top.
# It cannot be limited by path here, since input.body is undefined for PATCH.
_may_replicate if {
	input.method == "PATCH"
	input.path == ["v1", "data"]
}

_may_replicate if {
	input.method == "GET"
	array.slice(input.path, 0, 2) == ["v1", "policies"]
}

# Whether OPA fetches its policies as a bundle. OPA leaves credentials out of what it tells here.
_may_replicate if {
	input.method == "GET"
	input.path == ["v1", "config"]
}

_may_replicate if {
	input.method in {"PUT", "DELETE"}
	_from_a_config_map
}

# Below, never the root itself. OPA redirects a closing slash before it asks here; were it ever
# to stop, its data handler would trim it, and `kubernetes/` would mean `kubernetes`.
_below_a_root if {
	count(input.path) > 3
	array.slice(input.path, 0, 2) == ["v1", "data"]
	input.path[2] in data.system.access.roots
	not "" in input.path
}

# A policy is named <namespace>/<ConfigMap>/<key>. A file loaded at start is named by the path
# it was given on OPA's command line, and a PUT or DELETE of that name would replace or remove it.
# That path may have three parts too (etc/opa/authz.rego), so this file's own name is refused.
_from_a_config_map if {
	count(input.path) == 5
	array.slice(input.path, 0, 2) == ["v1", "policies"]
	input.path[4] != "authz.rego"
	not "" in input.path
}

_may_ask_for_a_decision if {
	input.method == "POST"
	some decision in data.system.access.decisions
	input.path == array.concat(["v1", "data"], split(decision, "/"))
}

# The same decision, of whichever policies decide on the object: a canary's or those in force.
_may_ask_for_a_decision if {
	input.method == "POST"
	input.path == ["v1", "data", "kube_sync_stage", "entry", "answer"]
}

# The same decision, and the name of the load of data that it was made on.
_may_ask_for_a_decision if {
	input.method == "POST"
	input.path == ["v1", "data", "kube_sync", "batch", "reviewed"]
}
