# METADATA
# title: Quality of service
# description: |
#   Writes on every pod which quality of service Kubernetes gives it, whatever its author wrote there,
#   so that policies on metadata can tell pods by it.
package kube_sync.qos

import data.kube_sync.metadata.changes
import data.kube_sync.metadata.scope
import data.kube_sync.qos.class

# METADATA
# description: The annotation, whose value is Guaranteed, Burstable or BestEffort
annotation := "scheduler.alpha.kubernetes.io/qos"

# METADATA
# entrypoint: true
# description: |
#   The answer to the request of an AdmissionReview. Pods that are created or updated get the
#   annotation; a pod whose amounts cannot be read is refused, since no class is true of it. All else
#   is let through as it is.
decision := {
	"allowed": false,
	"reasons": ["there is no request"],
	"patch": [],
	"policies": [],
} if {
	not is_object(_request)
}

decision := {
	"allowed": count(refusals) == 0,
	"reasons": array.concat(refusals, said),
	"patch": _patch,
	"policies": [],
} if {
	is_object(_request)
}

# METADATA
# description: Why the pod of the request is refused, sorted; empty for what is no such pod
default refusals := []

refusals := [sprintf("quality of service: %s", [problem]) |
	some problem in sort(class.problems(_spec))
] if {
	_asked
}

# METADATA
# description: The annotations that the object of the request is to have, empty for what is no pod
default annotations := {}

annotations := {annotation: class.of(_spec)} if {
	_asked
	count(refusals) == 0
}

# Without an input there is no request, of which something has to be said too.
default _request := null

_request := input

_asked if {
	scope.written(_request)
	scope.is_a(_request, "", "Pod")
}

_spec := object.get(scope.object_of(_request), "spec", {})

_patch := changes.patch(scope.object_of(_request), {"labels": {}, "annotations": annotations})

# METADATA
# description: What is written on the object of the request, for people
said := [sprintf("quality of service: annotation %q is %q", [key, value]) |
	some key, value in annotations
]
