package lib.objects

# The template of a workload, or the Pod itself.
pod_spec(workload) := workload.spec if workload.kind == "Pod"

pod_spec(workload) := workload.spec.template.spec if workload.kind in {"Deployment", "ReplicaSet"}

containers(workload) := array.concat(
	object.get(pod_spec(workload), "containers", []),
	object.get(pod_spec(workload), "initContainers", []),
)

label(workload, name, otherwise) := object.get(workload, ["metadata", "labels", name], otherwise)

annotation(workload, name) := workload.metadata.annotations[name]

has(workload, name) if workload[name]

has(workload, name) if workload[name] == false

namespace_labels(workload) := data.kubernetes.namespaces[workload.metadata.namespace].metadata.labels
