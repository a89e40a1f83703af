package policies.placement_taints

tolerated(taint) if {
	some toleration in input.spec.tolerations
	toleration.key == taint.key
}

repelled contains name if {
	some name, node in data.kubernetes.nodes
	some taint in node.spec.taints
	taint.effect == "NoSchedule"
	not tolerated(taint)
}

decision := {name | some name, _ in data.kubernetes.nodes} - repelled
