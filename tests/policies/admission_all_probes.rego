package policies.admission_all_probes

default decision := "refused"

decision := "admitted" if {
	every container in input.spec.containers {
		container.livenessProbe
		container.readinessProbe
	}
}
