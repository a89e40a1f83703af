# METADATA
# title: Scheduler names
# description: |
#   Every pod has a scheduler, the default one if it names none, and it needs permission. The API
#   server writes `default-scheduler` into a pod that names none, before anybody is asked.
package kube_sync.scheduling.schedulernames

import data.kube_sync.scheduling.merge
import data.kube_sync.scheduling.policies
import data.kube_sync.scheduling.settings

# METADATA
# description: Why a spec denies this pod its scheduler
denials(pod, spec) := _missing(_name(pod), spec) | _unlisted(_name(pod), spec)

# METADATA
# description: |
#   The names that stand for none, in whose place a default is put. Where the policy with the default
#   allows `default-scheduler` as well, a pod that asks for it looks like one that names none, and
#   keeps it.
unasked contains ""

unasked contains _filled_in if settings.default_scheduler_is_unspecified

unasked contains _filled_in if not _keeps_filled_in

# METADATA
# description: Whether a spec says itself that pods may have what the API server fills in
allows_filled_in(spec) if _filled_in in spec.required.schedulerNames

allows_filled_in(spec) if {
	not spec.required.schedulerNames
	spec.allowed.schedulerNames == []
}

allows_filled_in(spec) if {
	not spec.required.schedulerNames
	_filled_in in spec.allowed.schedulerNames
}

_filled_in := "default-scheduler"

_keeps_filled_in if {
	giving := [policies.specs[name] | some name in merge.names; policies.specs[name]["default"].schedulerName]
	allows_filled_in(giving[0])
	every spec in merge.judging {
		_is_required_of_none(spec)
	}
}

_is_required_of_none(spec) if not spec.required.schedulerNames

_is_required_of_none(spec) if _filled_in in spec.required.schedulerNames

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

_name(pod) := _filled_in if pod.schedulerName == ""

_name(pod) := pod.schedulerName if pod.schedulerName != ""
