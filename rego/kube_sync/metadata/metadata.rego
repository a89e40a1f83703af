# METADATA
# title: MetadataPolicy
# description: |
#   What the MetadataPolicies of a namespace say to an object that is created or updated in it, by its
#   labels and annotations: they reject it, or set labels and annotations. Policies are read at
#   `data.kubernetes.metadatapolicies[namespace][name]`.
#
#   A MetadataPolicy itself is refused when it is not valid and judged by nothing else, or policies
#   that reject everything could lock their administrator out. What is being deleted is let go.
package kube_sync.metadata

import data.kube_sync.metadata.afterwards
import data.kube_sync.metadata.changes
import data.kube_sync.metadata.rules
import data.kube_sync.metadata.scope
import data.kube_sync.metadata.validation
import data.kube_sync.qos

_group := "policy.kube-sync.io"

# METADATA
# entrypoint: true
# description: |
#   The answer of the policies alone to the request of an AdmissionReview: whether the object is
#   `allowed`; `reasons`, of which each names a policy, a rule and what it matched; a JSON Patch; and
#   the names of the `policies` that had a say. Objects of the cluster are let through as they are.
decision := _answer({})

# METADATA
# entrypoint: true
# description: |
#   The answer of all that looks at metadata, in the same form: pods get their quality of service
#   first, and policies see it. The patch does both at once, and nothing the second time. Without
#   quality of service, where `data.kube_sync.config.metadata.qos` is false, it is `decision`.
pipeline := _answer(_first) if not _unreadable

pipeline := qos.decision if _unreadable

# METADATA
# entrypoint: true
# description: |
#   The answer for an object that nobody changes any more, after `pipeline` and whoever changed it
#   since: rejected as ever, but for nothing that the policies of its namespace may have set
#   themselves. There is no patch, since what a policy sets is no demand.
checked := _refusal(_faults) if _faults != []

checked := {
	"allowed": rejecting == [],
	"reasons": [rules.rejection(found) | some found in rejecting],
	"patch": [],
	"policies": _names(rejecting),
} if {
	is_object(_request)
	_faults == []
	rejecting := afterwards.rejecting(_namespace, _maps(scope.object_of(_request), _first))
}

checked := _refusal(["there is no request"]) if not is_object(_request)

_maps(whole, first) := {
	"labels": scope.map_of(whole, "labels"),
	"annotations": object.union(scope.map_of(whole, "annotations"), first),
}

# What is set on a pod before policies look.
default _first := {}

_first := qos.annotations if _with_qos

_unreadable if {
	_with_qos
	qos.refusals != []
}

_with_qos if not data.kube_sync.config.metadata.qos == false

# Without an input there is no request, of which something has to be said too.
default _request := null

_request := input

# `first` are the annotations that were set before the policies look.
_answer(first) := _judged(scope.object_of(_request), first) if {
	is_object(_request)
	_faults == []
}

_answer(_) := _refusal(_faults) if _faults != []

_answer(_) := _refusal(["there is no request"]) if not is_object(_request)

_refusal(reasons) := {"allowed": false, "reasons": reasons, "patch": [], "policies": []}

_judged(whole, first) := _decided(whole, first, matching) if {
	maps := _maps(whole, first)
	matching := rules.matching(_namespace, maps.labels, maps.annotations)
}

_decided(_, _, matching) := {
	"allowed": false,
	"reasons": [rules.rejection(found) | some found in rejecting],
	"patch": [],
	"policies": _names(rejecting),
} if {
	rejecting := rules.rejecting(matching)
	rejecting != []
}

_decided(whole, first, matching) := {
	"allowed": true,
	"reasons": array.concat(_first_said(first), rules.accounts(matching)),
	"patch": changes.patch(whole, object.union({"annotations": first, "labels": {}}, updates)),
	"policies": _names(matching),
} if {
	rules.rejecting(matching) == []
	updates := rules.updates(matching)
}

_first_said({}) := []

_first_said(first) := qos.said if first != {}

_names(list) := sort({found.policy | some found in list})

# The namespace whose policies judge the request; none has the empty name.
default _namespace := ""

_namespace := scope.namespace_of(_request) if {
	scope.written(_request)
	not scope.leaving(_request)
	not _is_policy
}

# Why a MetadataPolicy is refused.
default _faults := []

_faults := [sprintf("%s: %s", [problem.path, problem.message]) |
	some problem in validation.problems(_request.object)
] if {
	_is_policy
	scope.written(_request)
	not scope.leaving(_request)
}

_is_policy if scope.is_a(_request, _group, "MetadataPolicy")
