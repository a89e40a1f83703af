# METADATA
# title: Scheduler names
# description: Every pod has a scheduler, the default one if it names none, and it needs permission
package kube_sync.scheduling.schedulernames

# METADATA
# description: Why a spec denies this pod its scheduler
denials(pod, spec) := _missing(_name(pod), spec) | _unlisted(_name(pod), spec)

_missing(name, spec) := {message |
	wanted := spec.required.schedulerNames
	not name in wanted
	message := sprintf("spec.schedulerName: %s is none of the required %s", [json.marshal(name), json.marshal(wanted)])
}

_unlisted(name, spec) := {sprintf("spec.schedulerName: %s is not allowed", [json.marshal(name)]) |
	not _is_allowed(name, spec)
}

_is_allowed(_, spec) if spec.allowed.schedulerNames == []

_is_allowed(name, spec) if name in spec.allowed.schedulerNames

_is_allowed(name, spec) if name in spec.required.schedulerNames

_is_allowed(name, spec) if name == spec["default"].schedulerName

_name(pod) := "default-scheduler" if pod.schedulerName == ""

_name(pod) := pod.schedulerName if pod.schedulerName != ""
