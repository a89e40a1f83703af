# METADATA
# title: DaemonSets
# description: |
#   The DaemonSet controller chooses the node of each pod by its template, and then replaces the
#   template's required node affinity by the name of that node (kubernetes 1.36,
#   pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity). What the author of the
#   DaemonSet asks for is seen in the template only: it is judged when it is written, like a pod of
#   its service account, and the controller's pods are judged by what it says of nodes.
package kube_sync.scheduling.daemonsets

import data.kube_sync.scheduling.affinities.nodes
import data.kube_sync.scheduling.pods

# METADATA
# description: The request in which the template of a DaemonSet is judged like a pod
request(daemonset, namespace, user) := {
	"template": true,
	"kind": {"group": "", "version": "v1", "kind": "Pod"},
	"operation": "CREATE",
	"namespace": namespace,
	"userInfo": user,
	"object": object.get(daemonset, ["spec", "template"], null),
}

# METADATA
# description: |
#   A pod as its author asked for it: without what the DaemonSet controller put into it, and with
#   what that has taken out. `nodes_were_judged` says that nothing more can be required of its
#   choice of nodes.
restored(pod) := object.union(_without_tie(pod), {
	"nodeName": _text(template, "nodeName"),
	"nodeSelector": object.union(_map(template, "nodeSelector"), pod.nodeSelector),
	"affinity": _with_terms(_without_tie(pod).affinity, _template_terms),
	"nodes_were_judged": false,
}) if {
	pods.is_made_by_daemonset_controller
	template
} else := object.union(_without_tie(pod), {
	"nodeName": "",
	"nodes_were_judged": _is_newer_than_the_data,
}) if {
	pods.is_made_by_daemonset_controller
} else := object.union(_without_tie(pod), {"nodes_were_judged": true}) if {
	pods.keeps_what_daemonset_controller_made
	count(_stored_ties) > 0
	nodes.hard_terms(pod.affinity) == nodes.hard_terms(_stored_affinity)
} else := object.union(pod, {"nodes_were_judged": false})

# METADATA
# description: The spec of the template that the DaemonSet controller makes this pod by
template := data.kubernetes.daemonsets[pods.namespace][_owner].spec.template.spec

_owner := [reference.name |
	some reference in input.object.metadata.ownerReferences
	reference.kind == "DaemonSet"
	reference.controller == true
][0]

# What is not replicated yet was written, and judged, a moment ago.
default _is_newer_than_the_data := false

_is_newer_than_the_data if {
	_owner
	data.kubernetes.daemonsets
}

_template_terms := nodes.hard_terms(_map(template, "affinity"))

_stored_affinity := _map(input.oldObject.spec, "affinity")

_stored_ties := {expression |
	some term in nodes.hard_terms(_stored_affinity)
	some expression in term.matchFields
	pods.names_a_node(expression)
}

_without_tie(pod) := object.union(object.remove(pod, ["affinity"]), {"affinity": nodes.replaced(pod.affinity, terms)}) if {
	found := nodes.hard_terms(pod.affinity)
	found != []
	terms := [rest |
		some term in found
		fields := [expression | some expression in nodes.listed(term, "matchFields"); not _is_the_controllers(expression)]
		rest := object.union(object.remove(term, ["matchFields"]), {"matchFields": fields | fields != []})
		not _is_spent(term, rest)
	]
} else := pod

# Nothing but the controller's own was in it.
_is_spent(term, rest) if {
	nodes.listed(term, "matchFields") != []
	nodes.listed(rest, "matchFields") == []
	nodes.listed(rest, "matchExpressions") == []
}

_is_the_controllers(expression) if {
	pods.is_made_by_daemonset_controller
	pods.names_a_node(expression)
}

_is_the_controllers(expression) if {
	pods.keeps_what_daemonset_controller_made
	expression in _stored_ties
}

_with_terms(affinity, []) := affinity

_with_terms(affinity, terms) := nodes.replaced(affinity, nodes.both(terms, nodes.hard_terms(affinity))) if terms != []

_map(document, field) := value if {
	value := document[field]
	value != null
} else := {}

_text(document, field) := value if {
	value := document[field]
	value != null
} else := ""
