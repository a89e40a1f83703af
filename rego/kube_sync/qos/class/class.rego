# METADATA
# title: The quality of service class of a pod
# description: |
#   As the API server computes it (pkg/apis/core/helper/qos, Kubernetes 1.36), of pods with defaults
#   filled in and of those without. Only cpu and memory count, amounts of zero or less do not, and
#   neither do ephemeral containers. Resources of the pod as a whole decide alone where there are any,
#   be they empty.
package kube_sync.qos.class

import data.kube_sync.quantity

_counted := {"cpu", "memory"}

# METADATA
# description: |
#   Guaranteed, Burstable or BestEffort, for the spec of a pod without problems: which the API server
#   computes from what requests and limits come to, and Guaranteed is only a pod in which nothing
#   that counts is without limits.
of(spec) := "BestEffort" if {
	considered := _considered(spec)
	_total(considered, "requests") == {}
	_total(considered, "limits") == {}
}

of(spec) := "Guaranteed" if {
	considered := _considered(spec)
	_guaranteed(considered)
}

of(spec) := "Burstable" if {
	considered := _considered(spec)
	count(_total(considered, "requests")) + count(_total(considered, "limits")) > 0
	not _guaranteed(considered)
}

# METADATA
# description: |
#   What keeps the class of this pod from being known, as a set of messages that begin with a path:
#   amounts of cpu or memory that are no quantities, and shapes that no pod has.
problems(spec) := {message | some message in _misshapen(spec)} | _unreadable(spec)

_guaranteed(considered) if {
	totals := _total(considered, "limits")
	totals != {}
	totals == _total(considered, "requests")
	every resources in considered {
		every name in _counted { resources.limits[name] > 0 }
	}
}

# What is added up: the resources of the pod where it has any, else those of its containers.
_considered(spec) := [_of_pod(spec)] if _pod_level(spec)

_considered(spec) := [_defaulted(container) | some [_, container] in _containers(spec)] if {
	not _pod_level(spec)
}

_pod_level(spec) if is_object(spec.resources)

# The sum of each resource, without what is not positive.
_total(considered, field) := {name: sum(amounts) |
	some name in _counted
	amounts := [amount |
		some resources in considered
		given := resources[field][name]
		given > 0
		amount := _whole_milli(given)
	]
	count(amounts) > 0
}

# The API server rounds up what it stores to thousandths (SetDefaults_ResourceList), and the defaults
# of a pod are summed up before that.
_whole_milli(amount) := amount + ((1000000 - (amount % 1000000)) % 1000000)

# Containers with their paths; those that run beside the others before those that run first.
_containers(spec) := array.concat(_listed(spec, "containers"), _listed(spec, "initContainers"))

_listed(spec, field) := [[sprintf("spec.%s[%d]", [field, i]), container] |
	containers := spec[field]
	is_array(containers)
	some i, container in containers
]

# A request that is absent is that of the limit (SetDefaults_Pod); one of zero is not absent.
_defaulted(container) := {
	"requests": object.union(limits, _amounts(container, "requests")),
	"limits": limits,
} if {
	limits := _amounts(container, "limits")
}

# Requests of the pod that are absent are those of its containers together where they have any, else
# the pod's limits (defaultPodRequests). A pod without limits gets none.
_of_pod(spec) := {
	"requests": object.union(_default_requests(spec, limits), _amounts(spec, "requests")),
	"limits": limits,
} if {
	limits := _amounts(spec, "limits")
}

_default_requests(spec, limits) := object.union(limits, _needed(spec)) if {
	_limited(spec)
} else := {}

_limited(spec) if count(spec.resources.limits) > 0

# The pod gets the limits of its containers on huge pages, if it says anything of itself
# (defaultHugePagePodLimits); with that it has limits.
_limited(spec) if {
	count(spec.resources.requests) > 0
	some [_, container] in _containers(spec)
	some name, _ in container.resources.limits
	startswith(name, "hugepages-")
}

# What the containers need at most at a time (AggregateContainerRequests): all that run together, or,
# while one of those that run first is at it, that one and the sidecars started before it.
_needed(spec) := {name: max(array.concat([_sum(together, name)], while_starting)) |
	containers := [_defaulted(container) | some [_, container] in _listed(spec, "containers")]
	first := [object.union(_defaulted(container), {"stays": _stays(container)}) |
		some [_, container] in _listed(spec, "initContainers")
	]
	together := array.concat(containers, [resources | some resources in first; resources.stays])
	some name in _counted
	_asked_for(array.concat(containers, first), name)
	while_starting := [_sum(_until(first, i), name) | some i, _ in first]
}

_until(first, i) := array.concat(
	[sidecar | some sidecar in array.slice(first, 0, i); sidecar.stays],
	[first[i]],
)

_asked_for(list, name) if {
	some resources in list
	is_number(resources.requests[name])
}

_sum(list, name) := sum([resources.requests[name] | some resources in list])

default _stays(_) := false

_stays(container) if container.restartPolicy == "Always"

# Amounts by name in units of 10^-9, of what has `resources`.
_amounts(owner, field) := {name: amount |
	some name in _counted
	amount := quantity.nano(owner.resources[field][name])
}

_unreadable(spec) := {message |
	some [path, owner] in array.concat(_containers(spec), [["spec", spec]])
	some field in ["requests", "limits"]
	some name in _counted
	given := owner.resources[field][name]
	not quantity.nano(given)
	message := sprintf("%s.resources.%s.%s: %s is no quantity", [path, field, name, _shown(given)])
}

_shown(value) := substring(json.marshal(value), 0, 64)

_misshapen(spec) := {"spec: must be an object"} if not is_object(spec)

_misshapen(spec) := {sprintf("%s: must be %s", [path, kind]) |
	some [path, value, kind] in _shapes(spec)
	value != null
	not _is(value, kind)
} if {
	is_object(spec)
}

_shapes(spec) := array.concat(lists, array.concat(items, resources)) if {
	lists := [[sprintf("spec.%s", [field]), object.get(spec, field, null), "a list"] |
		some field in ["containers", "initContainers"]
	]
	items := [[path, _present(container), "an object"] | some [path, container] in _containers(spec)]
	owners := array.concat(_containers(spec), [["spec", spec]])
	resources := [[concat("", [path, below]), value, "an object"] |
		some [path, owner] in owners
		is_object(owner)
		some [below, value] in [
			[".resources", object.get(owner, "resources", null)],
			[".resources.requests", object.get(owner, ["resources", "requests"], null)],
			[".resources.limits", object.get(owner, ["resources", "limits"], null)],
		]
	]
}

# A container that is null is none.
_present(container) := container if container != null

_present(null) := "null"

_is(value, "a list") if is_array(value)

_is(value, "an object") if is_object(value)
