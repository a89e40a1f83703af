package policies.admission_replicas

decision := "too many" if input.spec.replicas > 3

else := "none" if input.spec.replicas == 0

else := "unknown" if not input.spec.replicas

else := "fine"
