package policies.labels_cost

import data.lib.objects

default centre := "none"

centre := objects.label(input, "cost-centre", data.kubernetes.namespaces[input.metadata.namespace].metadata.annotations.cost)

decision := {"centre": centre, "owner": objects.label(input, "team", "nobody")}
