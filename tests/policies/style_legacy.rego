package policies.style_legacy

import rego.v1

deny contains msg if {
	input.kind = "Pod"
	image := input.spec.containers[_].image
	not startswith(image, "registry.example/")
	msg := sprintf("image %q", [image])
}

allow if count(deny) == 0

decision := {"allow": allow} if allow

decision := {"allow": false, "reasons": deny} if not allow
