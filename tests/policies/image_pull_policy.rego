package policies.image_pull_policy

decision contains {"container": i, "policy": policy} if {
	some i
	container := input.spec.containers[i]
	policy := object.get(container, "imagePullPolicy", "IfNotPresent")
	policy != "Always"
}
