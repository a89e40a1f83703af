package policies.admission_capabilities

import data.lib.objects

decision contains capability if {
	capability := objects.containers(input)[_].securityContext.capabilities.add[_]
	not capability in {"NET_BIND_SERVICE", "CHOWN"}
}
