package policies.rbac_subjects

decision contains binding.roleRef.name if {
	some binding in data.kubernetes.rolebindings[input.metadata.namespace]
	some subject in binding.subjects
	subject.kind == "ServiceAccount"
	subject.name == input.spec.serviceAccountName
}
