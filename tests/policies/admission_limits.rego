package policies.admission_limits

import data.lib.objects

missing(container) := {resource |
	some resource in {"cpu", "memory"}
	not container.resources.limits[resource]
}

decision := {container.name: missing(container) |
	some container in objects.containers(input)
	count(missing(container)) > 0
}
