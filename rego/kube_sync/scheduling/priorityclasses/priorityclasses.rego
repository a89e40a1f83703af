# METADATA
# title: Priority classes
# description: |
#   A pod without a priority class needs no permission, nor does one with the class that the API
#   server fills in for all that name none; what is required has to be there all the same.
package kube_sync.scheduling.priorityclasses

import data.kube_sync.scheduling.pods

# METADATA
# description: Why a spec denies this pod its priority class, or the lack of one
denials(pod, spec) := _missing(pod.priorityClassName, spec) | _unlisted(pod.priorityClassName, spec)

# METADATA
# description: Whether a spec says by itself that a pod may have this class
is_named(_, spec) if spec.allowed.priorityClasseNames == []

is_named(name, spec) if name in spec.allowed.priorityClasseNames

is_named(name, spec) if name in spec.required.priorityClasseNames

is_named(name, spec) if name == spec["default"].priorityClasseName

_missing(name, spec) := {message |
	wanted := spec.required.priorityClasseNames
	not name in wanted
	message := sprintf("spec.priorityClassName: %s is none of the required %s%s", [json.marshal(name), json.marshal(wanted), _whose(name)])
}

_unlisted(name, spec) := {sprintf("spec.priorityClassName: %s is not allowed", [json.marshal(name)]) |
	not _is_allowed(name, spec)
}

_is_allowed("", _)

_is_allowed(name, _) if name in pods.unasked_priority_classes

_is_allowed(name, spec) if is_named(name, spec)

_whose(name) := " (it is the global default, which the API server filled in)" if {
	name in pods.unasked_priority_classes
} else := ""
