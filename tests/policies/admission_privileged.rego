package policies.admission_privileged

import data.lib.objects

decision contains message if {
	some container in objects.containers(input)
	container.securityContext.privileged
	message := concat(" ", ["privileged container", container.name])
}
