package policies.admission_immutable

# The same but for what may change.
default decision := false

decision if {
	stored := data.kubernetes.nodes[input.metadata.name]
	json.remove(stored.metadata.labels, _free) == json.remove(input.metadata.labels, _free)
}

_free := ["zone", "team", "tier", "cost-centre"]
