package policies.admission_secrets

decision := {path |
	walk(input.spec, [path, value])
	value == "secret"
}
