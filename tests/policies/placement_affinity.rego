package policies.placement_affinity

zones contains cluster.metadata.labels.zone if some cluster in data.kubernetes.clusters[_]

wanted := object.get(input, ["metadata", "labels", "zone"], "any")

decision := "anywhere" if wanted == "any"

else := "in zone" if wanted in zones

else := "nowhere"
