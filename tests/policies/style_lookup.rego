package policies.style_lookup

decision := node.metadata.labels.zone if {
	node := data.kubernetes.nodes[input.spec.nodeName]
	not node.spec.unschedulable
}
