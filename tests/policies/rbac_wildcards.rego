package policies.rbac_wildcards

decision[name] := verbs if {
	some name, role in data.kubernetes.roles[input.metadata.namespace]
	verbs := [verb | verb := role.rules[_].verbs[_]; verb in ["*", "escalate", "bind"]]
	count(verbs) > 0
}
