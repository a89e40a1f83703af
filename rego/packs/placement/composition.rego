# METADATA
# title: Placement by packs
# description: |
#   Puts together what the packs below data.placement.packs say, each of which may have
#   `objections[cluster] contains reason` (the cluster may not be used),
#   `companions[cluster] contains other` (it may be used only where the other may be used too),
#   `regions[cluster] contains region` and `minimum_regions` (how the placement is spread),
#   `problems contains message` (the workload asks for what cannot be understood),
#   `parameter_problems contains message` (the pack's own ConfigMap is wrong) and
#   `parameter_notes contains message` (it may be wrong, and workloads are placed all the same).
package placement.composition

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"].placement

default _kinds := ["ReplicaSet"]

_kinds := _parameters.kinds if _are_kinds(_parameters.kinds)

# METADATA
# description: Whether the packs decide on the input
applies if {
	some kind in _kinds
	lower(kind) == lower(input.kind)
}

# What `kinds` should be is not known while these parameters are wrong or missing, so that every
# decision is an error then.
applies if count(parameter_problems) > 0

# METADATA
# description: Why each cluster may not be used
objections[name] contains reason if some reason in _opposed[name]

objections[name] contains sprintf("it needs %s, which may not be used", [companion]) if {
	some name in _unopposed
	some between in graph.reachable(_companions, {name})
	some companion in _companions[between]
	not companion in _unopposed
}

_companions[name] contains companion if some companion in data.placement.packs[_].companions[name]

_opposed[name] contains reason if some reason in data.placement.packs[_].objections[name]

_unopposed := _clusters - {name | some name, _ in _opposed}

_clusters := {name | some name, _ in data.kubernetes.clusters[_]}

# METADATA
# description: The clusters that may be used
usable := _clusters - {name | some name, _ in objections}

# METADATA
# description: The clusters to be used, each with its weight
clusters := object.filter(_requested, usable) if {
	_developer_chooses
} else := {name: {"weight": _weight(name)} | some name in usable}

# The clusters that a weight or a minimum gives replicas, as kube_sync/guard/placements.py has it.
_running := {name | some name, entry in clusters; _gets_replicas(entry)}

_gets_replicas(entry) if not is_object(entry)

_gets_replicas(entry) if {
	is_object(entry)
	object.get(entry, "maxReplicas", null) != 0
	some key, otherwise in {"weight": 1, "minReplicas": 0}
	not object.get(entry, key, otherwise) in {0, null}
}

# METADATA
# description: The placement, undefined where no cluster gets a replica
preferences := object.union(object.remove(_request, {"clusters"}), {"clusters": clusters}) if {
	_developer_chooses
	count(_running) > 0
} else := {"clusters": clusters, "rebalance": true} if {
	count(_running) > 0
}

# METADATA
# description: Why the workload is refused
errors contains message if some message in data.placement.packs[_].problems

errors contains sprintf("ConfigMap %s: %s", [configmap, problem]) if {
	some configmap, problems in data.kube_sync_parameters.problems
	some problem in problems
	not notes[configmap][problem]
}

errors contains "requested replica-set-preferences cannot be read" if {
	_parameters.style == "may"
	_is_requested
	not _request
}

errors contains sprintf("%s was requested and may not be used: %s", [name, _why(name)]) if {
	_developer_chooses
	some name, _ in _named
	not name in usable
}

errors contains sprintf("%s was requested without %s, which it needs", [name, companion]) if {
	_developer_chooses
	some name in _running
	some companion in _companions[name]
	not companion in _running
}

errors contains sprintf("no cluster may be used: %s", [_reasons]) if count(usable) == 0

errors contains "the request gives no replica to a cluster that may be used" if {
	count(usable) > 0
	count(_running) == 0
}

errors contains sprintf("the placement needs %d regions, and has %d (%s)", [needed, count(regions), concat(", ", sort(regions))]) if {
	count(_running) > 0
	needed := data.placement.packs[_].minimum_regions
	regions := {_region(name) | some name in _running} - {""}
	count(regions) < needed
}

# METADATA
# description: What may be wrong with ConfigMaps of packs, and stops nothing
notes[sprintf("kube-federation-scheduling-policy/%s", [replace(pack, "_", "-")])] contains note if {
	some pack
	some note in data.placement.packs[pack].parameter_notes
}

# METADATA
# description: What is wrong with the ConfigMap of this module itself
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"style": "string", "kinds": "array"})
}

parameter_problems contains sprintf("style must be must or may, and is %s", [style]) if {
	style := _parameters.style
	not style in {"must", "may"}
}

parameter_problems contains "kinds must name one kind or more" if _parameters.kinds == []

parameter_problems contains sprintf("kinds must be kinds as ReplicaSet, and %v is none", [kind]) if {
	is_array(_parameters.kinds)
	some kind in _parameters.kinds
	not _is_kind(kind)
}

_are_kinds(kinds) if {
	is_array(kinds)
	count(kinds) > 0
	every kind in kinds {
		_is_kind(kind)
	}
}

# A resource (`replicasets`, `deployments.apps`) is no kind. Other names of kinds are not known here.
_is_kind(kind) if {
	regex.match(`^[A-Za-z][A-Za-z0-9]*$`, kind)
	not regex.match(`^(replica|daemon|stateful)sets$|^(deployment|(cron)?job|pod|workload)s$`, lower(kind))
}

# What the developer requested counts in the style that says which clusters may be used; who
# requests nothing follows the packs in both.
_developer_chooses if {
	_parameters.style == "may"
	is_object(_request)
}

_is_requested if input.metadata.annotations["federation.kubernetes.io/replica-set-preferences"]

_request := request if {
	request := _parsed(input.metadata.annotations["federation.kubernetes.io/replica-set-preferences"])
	is_object(request.clusters)
}

_parsed(request) := request if is_object(request)

_parsed(request) := json.unmarshal(request) if {
	is_string(request)
	json.is_valid(request)
}

_named := object.remove(_request.clusters, {"*"})

# Under the name "*" a preference speaks of every cluster that it does not name.
_requested := object.union(_named, {name: _request.clusters["*"] |
	some name in usable
	not _named[name]
})

_region(name) := concat("/", sort({region | some region in data.placement.packs[_].regions[name]}))

# Regions have equal shares, whatever the number of their clusters: 840 is a multiple of 1 to 8.
# However many they are, each gets replicas.
_weight(name) := max([1, floor(840 / count(_together[_region(name)]))]) if {
	_regions_differ
} else := 1

_regions_differ if count({count(names) | some names in _together}) > 1

_together[_region(name)] contains name if some name in usable

default _why(_) := "there is no such cluster"

_why(name) := concat(", ", sort(objections[name]))

default _reasons := "no cluster is registered"

_reasons := concat("; ", sort({sprintf("%s: %s", [name, _why(name)]) | some name in _clusters})) if count(_clusters) > 0
