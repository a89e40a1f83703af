# METADATA
# title: Node names
# description: |
#   A pod that names its node passes the scheduler by, and with it every rule about nodes. Only who
#   has to may do so without permission: the scheduler, the DaemonSet controller, and a node for
#   itself. `allowed.nodeNames` is an extension of the design proposal, with its syntax.
package kube_sync.scheduling.nodenames

# METADATA
# description: Why a spec denies this pod the node that it names
denials(pod, spec) := {sprintf("spec.nodeName: %s is not allowed", [json.marshal(pod.nodeName)]) |
	pod.nodeName != ""
	not _may_name_nodes(pod.nodeName)
	not _is_allowed(pod.nodeName, spec)
}

_is_allowed(_, spec) if spec.allowed.nodeNames == []

_is_allowed(name, spec) if name in spec.allowed.nodeNames

# Nobody can change it by an update, so it was judged when the pod was made, or is the scheduler's.
_may_name_nodes(name) if {
	input.operation == "UPDATE"
	input.oldObject.spec.nodeName == name
}

_may_name_nodes(_) if {
	not input.template
	input.userInfo.username == "system:kube-scheduler"
}

_may_name_nodes(name) if {
	not input.template
	input.userInfo.username == concat(":", ["system:node", name])
	"system:nodes" in input.userInfo.groups
}
