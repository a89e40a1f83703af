package policies.rbac_allowed

default decision := false

bound contains role if {
	some role in data.kubernetes.roles[input.metadata.namespace]
	some binding in data.kubernetes.rolebindings[input.metadata.namespace]
	binding.roleRef.name == role.metadata.name
	binding.subjects[_].name == input.spec.serviceAccountName
}

decision if {
	some rule in bound[_].rules
	"pods" in rule.resources
	{"create", "*"} & {verb | some verb in rule.verbs} != set()
}
