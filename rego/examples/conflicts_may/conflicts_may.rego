# Clusters that may be used.
#
# Resolves a conflict in the first style of the design proposal: the policy defines the clusters
# that MAY be used, here those in the EU, and the developer chooses among them. Where the
# developer asks for others too, the answer holds an error and what is left of the request.
# Whoever requests nothing is given all that may be used. The request is what the developer
# wrote last, even where an answer has replaced it since: `kube-sync.io/requested` keeps it.
#
# Helpers are functions, not rules: a document's rules are all part of OPA's answer, and the
# answer is to hold `annotations` and `errors` only.
#
# A comment only: of a package, which the examples share, METADATA may be given but once.
package io.k8s.federation.admission

# METADATA
# description: What the developer requested, less the clusters that the policy does not define
annotations["federation.kubernetes.io/replica-set-preferences"] := preferences if {
	input.kind == "ReplicaSet"
	clusters := _permitted_clusters(input)
	count(clusters) > 0

	preferences := object.union(
		object.remove(_preferences(input), {"clusters"}),
		{"clusters": clusters},
	)
}

# METADATA
# description: A cluster was requested that the policy does not define
errors contains "requested replica-set-preferences includes invalid clusters" if {
	input.kind == "ReplicaSet"
	invalid_clusters := object.keys(_developer_clusters(input)) - _policy_defined_clusters(input)
	invalid_clusters != set()
}

# METADATA
# description: Nothing is left to run on, which must not read as permission to run anywhere
errors contains "no cluster of requested replica-set-preferences may be used" if {
	input.kind == "ReplicaSet"
	count(_permitted_clusters(input)) == 0
}

# METADATA
# description: A request that cannot be read, which must not read as no request
errors contains "requested replica-set-preferences cannot be read" if {
	input.kind == "ReplicaSet"
	not _preferences(input)
}

_permitted_clusters(resource) := object.filter(
	_developer_clusters(resource),
	_policy_defined_clusters(resource),
)

# The argument is not read; Rego has no function without one.
_policy_defined_clusters(_) := {name |
	some name, cluster in data.kubernetes.clusters[_]
	startswith(cluster.metadata.labels["topology.kubernetes.io/region"], "europe-")
}

# Under the name "*" a preference speaks of every cluster that it does not name.
_developer_clusters(resource) := object.union(named, others) if {
	requested := _preferences(resource).clusters
	named := object.remove(requested, {"*"})
	others := {name: requested["*"] |
		some name in (_policy_defined_clusters(resource) - object.keys(named))
	}
}

_preferences(resource) := preferences if {
	preferences := _parsed(_requested(resource))
	is_object(preferences.clusters)
}

_parsed(request) := request if is_object(request)

_parsed(request) := json.unmarshal(request) if is_string(request)

_requested(resource) := object.get(
	resource,
	["metadata", "annotations", "federation.kubernetes.io/replica-set-preferences"],
	{"clusters": {"*": {"weight": 1}}, "rebalance": true},
)
