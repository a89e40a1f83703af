package policies.style_template

decision := $"{input.kind} {input.metadata.namespace}/{input.metadata.name} has {count(input.spec.containers)}"
