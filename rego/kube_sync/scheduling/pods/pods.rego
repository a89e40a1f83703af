# METADATA
# title: Pods
# description: |
#   What the request says of how its pod is to be scheduled, in one form whatever the pod leaves
#   out, and what of it nobody asked for: the API server and the DaemonSet controller add to pods
#   before an admission webhook sees them. A request with a `template` is about a DaemonSet's pod
#   template, which is judged like a pod (kube_sync.scheduling.daemonsets).
package kube_sync.scheduling.pods

import data.kube_sync.scheduling.settings
import data.kube_sync.scheduling.shapes

# METADATA
# description: What cannot be read of the pod, each by its path; a pod with any is denied
problems contains "spec: must be an object" if not _has_spec

problems contains "metadata.namespace: must be a name" if not namespace

problems contains message if {
	_has_spec
	some message in shapes.problems("spec", object.filter(input.object.spec, _scheduling), _fields)
}

problems contains "metadata.labels: must be an object" if {
	not is_object(object.get(input.object, ["metadata", "labels"], {}))
	input.object.metadata.labels != null
}

# METADATA
# description: The namespace of the pod, as the API server says in the request
namespace := _name(input.namespace) if {
	_name(input.namespace)
} else := _name(input.object.metadata.namespace)

# METADATA
# description: The name of the service account that runs the pod
account := _filled(["serviceAccountName", "serviceAccount"], "default")

# METADATA
# description: How the pod is to be scheduled; what it does not say is empty
asked := {
	"namespace": namespace,
	"labels": _or(object.get(input.object, ["metadata", "labels"], null), {}),
	"nodeName": _filled(["nodeName"], ""),
	"schedulerName": _filled(["schedulerName"], ""),
	"priorityClassName": _filled(["priorityClassName"], ""),
	"nodeSelector": _or(_spec.nodeSelector, {}),
	"tolerations": _or(_spec.tolerations, []),
	"affinity": {kind: value | some kind, value in _spec.affinity; not value in [null, {}]},
}

# METADATA
# description: Whether no more than one node can be chosen, and that by its name
is_tied(pod) if pod.nodeName != ""

is_tied(_) if {
	# As the request has it: the DaemonSet controller's own is taken out of what is judged.
	terms := input.object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
	count(terms) > 0
	every term in terms {
		some expression in term.matchFields
		names_a_node(expression)
	}
}

# METADATA
# description: Whether an expression of `matchFields` is met by one node alone
names_a_node(expression) if {
	expression.key == "metadata.name"
	expression.operator == "In"
	count(expression.values) == 1
}

# METADATA
# description: |
#   Tolerations that need no permission: the two that the API server adds to every pod
#   (DefaultTolerationSeconds), those of its other plugins, and those of the DaemonSet controller on
#   its own pods.
unasked_tolerations contains {
	"key": key,
	"operator": "Exists",
	"effect": "NoExecute",
	"tolerationSeconds": settings.injected_toleration_seconds,
} if {
	some key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
}

unasked_tolerations contains toleration if {
	some given in settings.plugin_tolerations
	toleration := {name: value | some name, value in given; not value in {"", null}}
	_is_added_here(toleration)
}

unasked_tolerations contains toleration if {
	_is_of_a_daemonset
	some toleration in _daemonset_tolerations
}

unasked_tolerations contains toleration if {
	keeps_what_daemonset_controller_made
	some toleration in _daemonset_tolerations
	toleration in input.oldObject.spec.tolerations
}

# METADATA
# description: PriorityClasses that the API server fills in where a pod names none
unasked_priority_classes contains settings.global_default_priority_class if {
	settings.global_default_priority_class != ""
}

unasked_priority_classes contains name if {
	some name
	data.kubernetes.priorityclasses[name].globalDefault == true
}

# METADATA
# description: Whether the DaemonSet controller makes the pod; owner references could be claimed
is_made_by_daemonset_controller if {
	settings.trust_daemonset_controller
	input.operation == "CREATE"
	input.userInfo.username == "system:serviceaccount:kube-system:daemon-set-controller"
}

# METADATA
# description: |
#   Whether what that controller puts into its pods needs no permission where the pod that is stored
#   has just that already: it was judged when the pod was made.
keeps_what_daemonset_controller_made if {
	settings.trust_daemonset_controller
	input.operation == "UPDATE"
}

_is_of_a_daemonset if is_made_by_daemonset_controller

_is_of_a_daemonset if input.template

# ExtendedResourceToleration tolerates the taint of what a container requests, and of nothing else.
_is_added_here(toleration) if not _is_extended_resource(object.get(toleration, "key", ""))

_is_added_here(toleration) if {
	some field in ["initContainers", "containers"]
	some container in input.object.spec[field]
	container.resources[_][toleration.key]
}

# As k8s.io/kubernetes has it (pkg/apis/core/helper, IsExtendedResourceName).
_is_extended_resource(name) if {
	contains(name, "/")
	not contains(name, "kubernetes.io/")
	not startswith(name, "requests.")
}

# A rule of its own: `not is_object(...)` would be undefined where the spec is.
_has_spec if is_object(input.object.spec)

_scheduling := [
	"affinity",
	"nodeName",
	"nodeSelector",
	"priorityClassName",
	"schedulerName",
	"serviceAccount",
	"serviceAccountName",
	"tolerations",
]

_daemonset_tolerations := {toleration |
	some effect, keys in _of_daemonsets
	some key in keys
	toleration := {"key": key, "operator": "Exists", "effect": effect}
}

_of_daemonsets := {
	"NoExecute": ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"],
	"NoSchedule": [
		"node.kubernetes.io/disk-pressure",
		"node.kubernetes.io/memory-pressure",
		"node.kubernetes.io/network-unavailable",
		"node.kubernetes.io/pid-pressure",
		"node.kubernetes.io/unschedulable",
	],
}

_spec := {field: object.get(input.object.spec, field, null) | some field in _scheduling}

_filled(fields, otherwise) := array.concat(
	[name | some field in fields; name := _spec[field]; not name in {null, ""}],
	[otherwise],
)[0]

_or(value, _) := value if value != null

_or(null, otherwise) := otherwise

_name(value) := value if {
	is_string(value)
	value != ""
}
