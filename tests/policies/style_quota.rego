package policies.style_quota

quota := data.kubernetes.namespaces[input.metadata.namespace].metadata.annotations.quota

used := sum([object.spec.replicas | some object in data.kubernetes.replicasets[input.metadata.namespace]])

decision if used + input.spec.replicas <= to_number(quota)
