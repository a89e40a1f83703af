package policies.labels_values

patterns := {"team": "^[a-z]+$", "tier": "^(gold|silver)$"}

decision contains label if {
	some label, pattern in patterns
	value := input.metadata.labels[label]
	not regex.match(pattern, value)
}
