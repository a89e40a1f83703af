package policies.admission_host

import data.lib.objects

decision.hosts[field] if {
	some field in ["hostNetwork", "hostPID", "hostIPC"]
	objects.pod_spec(input)[field]
}

decision.ports contains port.hostPort if some port in objects.containers(input)[_].ports
