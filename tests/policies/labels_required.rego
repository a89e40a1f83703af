package policies.labels_required

required := {"app", "team"}

decision := required - object.keys(object.get(input.metadata, "labels", {}))
