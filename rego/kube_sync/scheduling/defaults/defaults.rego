# METADATA
# title: Defaults
# description: |
#   What a pod is given that it does not ask for: key by key of its node selector, kind by kind of its
#   affinity, and tolerations, scheduler and priority class where it names none. What the API server
#   filled in counts as not asked for. Kubernetes follows any one of the required terms for nodes, so
#   that part of a default goes into each of them. A pod that is tied to one node is given nothing
#   that nodes are chosen by: on another kind of node it could never start.
package kube_sync.scheduling.defaults

import data.kube_sync.jsonpatch
import data.kube_sync.scheduling.affinities.nodes
import data.kube_sync.scheduling.pods

# METADATA
# description: A pod with the defaults in place, of which `unasked` scheduler names count as none
injected(pod, given, unasked) := object.union(object.remove(pod, ["affinity"]), {
	"schedulerName": _name(pod.schedulerName in unasked, pod.schedulerName, given, "schedulerName"),
	"priorityClassName": _name(_names_no_class(pod), pod.priorityClassName, given, "priorityClasseName"),
	"nodeSelector": object.union(_selector(pod, given), pod.nodeSelector),
	"tolerations": array.concat(pod.tolerations, _tolerations(pod, given)),
	"affinity": _affinity(pod, given),
})

# METADATA
# description: The tolerations of a default, one for each of its values
expanded(tolerations) := [toleration |
	some given in tolerations
	one := {name: value | some name, value in object.remove(given, ["values"]); value != null}
	some valued in _valued(given)
	toleration := object.union(one, valued)
]

_valued(given) := [{"value": value} | some value in given.values] if is_array(given.values)

_valued(given) := [{}] if not is_array(object.get(given, "values", null))

# METADATA
# description: The operations that turn the request's pod from the one form into the other
patch(before, after) := array.flatten([
	[jsonpatch.add(["spec", field], after[field]) |
		some field in ["priorityClassName", "schedulerName"]
		after[field] != before[field]
	],
	_stale_priority(before, after),
	jsonpatch.put(input.object, ["spec", "nodeSelector"], object.remove(after.nodeSelector, object.keys(before.nodeSelector))),
	_toleration_patch(before, after),
	jsonpatch.put(input.object, ["spec", "affinity"], {kind: value |
		some kind, value in after.affinity
		value != object.get(before.affinity, kind, null)
	}),
])

_name(true, asked, given, field) := object.get(given, field, asked)

_name(false, asked, _, _) := asked

_selector(pod, given) := {} if {
	pods.is_tied(pod)
} else := object.get(given, "nodeSelector", {})

# Kind by kind: a union of the maps would mix the pod's own terms with the default's.
_affinity(pod, given) := pod.affinity if {
	not given.affinity
} else := object.union(object.remove(given.affinity, object.keys(pod.affinity) | {"nodeAffinity"}), pod.affinity) if {
	pods.is_tied(pod)
} else := object.union(
	object.remove(given.affinity, object.keys(pod.affinity)),
	_completed(pod.affinity, nodes.hard_terms(given.affinity)),
)

_completed(affinity, []) := affinity

_completed(affinity, given) := affinity if {
	given != []
	not affinity.nodeAffinity
}

_completed(affinity, given) := nodes.replaced(affinity, _hard_terms(nodes.hard_terms(affinity), given)) if {
	given != []
	affinity.nodeAffinity
}

_hard_terms([], given) := given

_hard_terms(terms, given) := nodes.completed(terms, given) if terms != []

default _names_no_class(_) := false

_names_no_class(pod) if pod.priorityClassName in ({""} | pods.unasked_priority_classes)

_tolerations(pod, given) := expanded(object.get(given, "tolerations", [])) if {
	every toleration in pod.tolerations {
		toleration in pods.unasked_tolerations
	}
} else := []

# The API server has resolved the class that the pod named, or none, by now: it refuses a number
# that is not the new class's own, and fills both in again.
_stale_priority(before, after) := [jsonpatch.remove(["spec", field]) |
	after.priorityClassName != before.priorityClassName
	some field in ["priority", "preemptionPolicy"]
	field in object.keys(input.object.spec)
]

_toleration_patch(before, after) := [jsonpatch.add(["spec", "tolerations", "-"], toleration) |
	some toleration in array.slice(after.tolerations, count(before.tolerations), count(after.tolerations))
] if {
	is_array(input.object.spec.tolerations)
} else := [jsonpatch.add(["spec", "tolerations"], after.tolerations) |
	count(after.tolerations) > 0
]
