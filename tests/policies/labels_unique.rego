package policies.labels_unique

decision contains name if {
	some name, node in data.kubernetes.nodes
	name != input.metadata.name
	node.metadata.labels.app == input.metadata.labels.app
}
