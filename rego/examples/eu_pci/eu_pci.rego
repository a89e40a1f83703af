# METADATA
# title: EU and PCI placement
# description: |
#   Certain apps must be deployed on clusters in EU zones with sufficient PCI compliance.
#   A ReplicaSet says what it requires in its annotations, a cluster what it offers in its labels.
#
#   Helpers are functions, not rules: a document's rules are all part of OPA's answer, and the
#   answer is to hold `annotations` and `errors` only.
package io.k8s.federation.admission

# METADATA
# description: Equal shares for every cluster that meets the requirements, none when no cluster does
annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name in eligible},
	"rebalance": true,
} if {
	input.kind == "ReplicaSet"
	requested := _annotations(input)
	count(_unreadable(requested)) == 0

	eligible := _eligible(requested)
	count(eligible) > 0
}

# METADATA
# description: Requirements that cannot be read, since to skip one would be to drop it
errors contains message if {
	input.kind == "ReplicaSet"
	some message in _unreadable(_annotations(input))
}

# METADATA
# description: What was required and why each cluster fails it, when no cluster is left
errors contains message if {
	input.kind == "ReplicaSet"
	requested := _annotations(input)
	count(_unreadable(requested)) == 0
	count(_eligible(requested)) == 0

	message := sprintf("no cluster meets the requirements (%s): %s", [_required(requested), _verdicts(requested)])
}

_annotations(resource) := object.get(resource, ["metadata", "annotations"], {})

_unreadable(requested) := _unreadable_jurisdiction(requested) | _unreadable_level(requested)

_unreadable_jurisdiction(requested) := {message |
	text := requested["policy.federation.alpha.kubernetes.io/eu-jurisdiction-required"]
	not text in {"true", "false"}
	message := sprintf(
		`annotation policy.federation.alpha.kubernetes.io/eu-jurisdiction-required must be "true" or "false", not %q`,
		[text],
	)
}

_unreadable_level(requested) := {message |
	text := requested["policy.federation.alpha.kubernetes.io/pci-compliance-level"]
	not _whole_number(text)
	message := sprintf(
		"annotation policy.federation.alpha.kubernetes.io/pci-compliance-level must be a whole number, not %q",
		[text],
	)
}

_whole_number(text) := to_number(text) if regex.match(`^(0|[1-9][0-9]*)$`, text)

# A name may be registered in several namespaces, but a preference has the name only, so one
# unfit cluster of that name rules the name out.
_eligible(requested) := names - unfit if {
	names := {name | some name, _ in data.kubernetes.clusters[_]}
	unfit := {name |
		some name, cluster in data.kubernetes.clusters[_]
		count(_objections(requested, cluster)) > 0
	}
}

_objections(requested, cluster) := _outside_eu(requested, cluster) | _below_level(requested, cluster)

_outside_eu(requested, cluster) := {reason |
	_eu_required(requested)
	region := _region(cluster)
	not startswith(region, "europe-")
	reason := sprintf("region %q is not in the EU", [region])
}

_below_level(requested, cluster) := {reason |
	level := _cluster_level(cluster)
	level < _required_level(requested)
	reason := sprintf("PCI level %d is too low", [level])
}

_eu_required(requested) if requested["policy.federation.alpha.kubernetes.io/eu-jurisdiction-required"] == "true"

default _required_level(_) := 0

_required_level(requested) := _whole_number(requested["policy.federation.alpha.kubernetes.io/pci-compliance-level"])

default _region(_) := ""

_region(cluster) := cluster.metadata.labels["topology.kubernetes.io/region"]

default _cluster_level(_) := 0

_cluster_level(cluster) := _whole_number(cluster.metadata.labels["compliance.example.com/pci-level"])

default _required(_) := "none"

_required(requested) := concat(", ", parts) if {
	parts := array.concat(
		["EU region" | _eu_required(requested)],
		[sprintf("PCI level %d", [level]) | level := _required_level(requested); level > 0],
	)
	count(parts) > 0
}

_verdicts(requested) := concat("; ", sort(verdicts)) if {
	verdicts := [sprintf("%s/%s: %s", [namespace, name, concat(", ", objections)]) |
		some namespace, clusters in data.kubernetes.clusters
		some name, cluster in clusters
		objections := _objections(requested, cluster)
		count(objections) > 0
	]
	count(verdicts) > 0
} else := "no cluster is registered"
