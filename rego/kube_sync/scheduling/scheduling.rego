# METADATA
# title: Scheduling
# description: |
#   Whether a pod may be scheduled as it asks, and with which defaults; the same of the template of a
#   DaemonSet; whether a SchedulingPolicy may be stored. All else passes. What is not decided here is denied: a pod needs a policy that it
#   may use, and the policies' permission for everything it says of its scheduling.
package kube_sync.scheduling

import data.kube_sync.scheduling.affinities
import data.kube_sync.scheduling.daemonsets
import data.kube_sync.scheduling.defaults
import data.kube_sync.scheduling.merge
import data.kube_sync.scheduling.nodenames
import data.kube_sync.scheduling.nodeselectors
import data.kube_sync.scheduling.pods
import data.kube_sync.scheduling.policies
import data.kube_sync.scheduling.priorityclasses
import data.kube_sync.scheduling.schedulernames
import data.kube_sync.scheduling.settings
import data.kube_sync.scheduling.tolerations
import data.kube_sync.scheduling.validation

# METADATA
# title: Decision
# description: |
#   The answer to the `request` of an AdmissionReview: `allowed`, the `reasons` if it is not, the
#   `patch` (JSON Patch) if it is, and the names of the `policies` considered.
# entrypoint: true
default decision := {
	"allowed": false,
	"reasons": ["the request cannot be judged"],
	"patch": [],
	"policies": [],
}

decision := {"allowed": true, "reasons": [], "patch": [], "policies": []} if {
	_passes
} else := {"allowed": reasons == [], "reasons": reasons, "patch": [], "policies": []} if {
	_is_policy
	reasons := sort(validation.problems(input.object))
} else := _of_template if {
	_is_daemonset
} else := judged if {
	_is_pod
}

# METADATA
# description: The decision about the pod, or the template of a DaemonSet, of a request
judged := {"allowed": false, "reasons": sort(_faults), "patch": [], "policies": []} if {
	count(_faults) > 0
} else := {"allowed": true, "reasons": [], "patch": _patch, "policies": merge.names} if {
	count(merge.names) > 0
	count(_denials) == 0
} else := {"allowed": false, "reasons": reasons, "patch": [], "policies": merge.names} if {
	count(_denials) > 0
	reasons := sort({concat(" ", [denial, _considered]) | some denial in _denials})
}

# METADATA
# title: Merged policy
# description: The spec that the usable policies make together, for the pod of a request
# entrypoint: true
merged := spec if {
	_is_daemonset
	spec := merge.merged with input as _template_request
} else := merge.merged

_passes if {
	is_string(_kind.group)
	is_string(_kind.kind)
	_kind.kind != ""
	not _is_pod
	not _is_daemonset
	not _is_policy
}

_passes if input.operation in {"DELETE", "CONNECT"}

# Binding, status and the rest change nothing that a policy speaks of, or are asked by the scheduler.
_passes if {
	is_string(input.subResource)
	input.subResource != ""
}

# The garbage collector and the owners of finalizers have no say in how a pod is scheduled.
_passes if {
	_is_pod
	input.operation == "UPDATE"
	is_object(input.object)
	is_object(input.oldObject)
	input.object != input.oldObject
	json.remove(input.object, _kept_by_others) == json.remove(input.oldObject, _kept_by_others)
}

# Its pods are judged when they are made.
_passes if {
	_is_daemonset
	input.operation == "UPDATE"
	is_object(input.object.spec.template)
	input.object.spec.template == input.oldObject.spec.template
}

_kept_by_others := ["metadata/finalizers", "metadata/ownerReferences", "metadata/managedFields", "metadata/resourceVersion"]

_is_pod if {
	_kind.kind == "Pod"
	_kind.group == ""
}

_is_daemonset if {
	_kind.kind == "DaemonSet"
	_kind.group == "apps"
}

_is_policy if {
	_kind.kind == "SchedulingPolicy"
	_kind.group == settings.group
}

_kind := {"kind": input.kind.kind, "group": _text(object.get(input.kind, "group", ""))} if {
	is_object(input.kind)
} else := {"kind": input.object.kind, "group": _group(input.object.apiVersion)}

_group(version) := "" if not contains(version, "/")

_group(version) := split(version, "/")[0] if contains(version, "/")

_text(null) := ""

_text(value) := value if value != null

_of_template := {
	"allowed": answer.allowed,
	"reasons": sort({_in_template(reason) | some reason in answer.reasons}),
	"patch": [object.union(operation, {"path": concat("", ["/spec/template", operation.path])}) |
		some operation in answer.patch
	],
	"policies": answer.policies,
} if {
	input.operation in {"CREATE", "UPDATE"}
	answer := judged with input as _template_request
}

_template_request := daemonsets.request(input.object, pods.namespace, object.get(input, "userInfo", {}))

_in_template(reason) := concat("", ["spec.template.", reason]) if {
	startswith(reason, "spec")
} else := reason

_faults := ((settings.problems | pods.problems) | _unknown_operations) | _nothing_usable

_unknown_operations contains message if {
	not input.operation in {"CREATE", "UPDATE"}
	message := "operation: must be CREATE, UPDATE, DELETE or CONNECT"
}

# Once, for what cannot be read may well be why nothing is usable.
_nothing_usable contains message if {
	count((settings.problems | pods.problems)) == 0
	count(policies.specs) == 0
	message := sprintf("no SchedulingPolicy may be used by the service account %s of namespace %s%s", [
		pods.account,
		pods.namespace,
		_left_out,
	])
}

# Undefined, and so denied, as soon as one rule cannot tell.
_denials := union({denials | some denials in found}) if {
	found := [denials |
		some spec in merge.judging
		denials := union({
			schedulernames.denials(_pod, spec),
			priorityclasses.denials(_pod, spec),
			nodenames.denials(_pod, spec),
			nodeselectors.denials(_pod, spec),
			tolerations.denials(_pod, spec),
			affinities.denials(_pod, spec),
		})
	]
	count(found) == count(merge.judging)
}

# Who changes a pod is not given what the pod was made without.
_pod := defaults.injected(_asked, merge.given, schedulernames.unasked) if {
	input.operation == "CREATE"
} else := _asked

_asked := daemonsets.restored(pods.asked)

_patch := defaults.patch(_asked, _pod)

_considered := sprintf("(policies considered: %s%s)", [concat(", ", merge.names), _left_out])

_left_out := "" if policies.ignored == []

_left_out := concat("", ["; ignored as invalid: ", concat(", ", policies.ignored)]) if policies.ignored != []
