package policies.admission_run_as

import data.lib.objects

# The container's own word first, the Pod's after it.
user(container) := container.securityContext.runAsUser

user(container) := objects.pod_spec(input).securityContext.runAsUser if {
	not objects.has(container.securityContext, "runAsUser")
}

decision contains container.name if {
	some container in objects.containers(input)
	user(container) == 0
}
