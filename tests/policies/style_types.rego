package policies.style_types

decision := "text" if is_string(input.spec.replicas)

decision := "number" if is_number(input.spec.replicas)

decision := "absent" if not input.spec.replicas
