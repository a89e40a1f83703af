# METADATA
# title: Affinities
# description: |
#   Each kind of affinity has two halves, what is required of a node and what is preferred; a half
#   needs permission once it has a term. Node affinity is judged expression by expression, and pod
#   affinity and anti-affinity term by term, each against one pattern whole.
package kube_sync.scheduling.affinities

import data.kube_sync.scheduling.affinities.nodes
import data.kube_sync.scheduling.affinities.peers

# METADATA
# description: Why a spec denies this pod its affinity, or the lack of one
denials(pod, spec) := _denied_nodes(pod, spec) | (_denied_peers(pod, spec) | _missing(pod, spec))

_halves := ["preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"]

_plural := {
	"nodeAffinity": "nodeAffinities",
	"podAffinity": "podAffinities",
	"podAntiAffinity": "podAntiAffinities",
}

_denied_nodes(pod, spec) := {message |
	pod.affinity != {} # as of most pods
	some half in _halves
	terms := nodes.terms(pod.affinity, half)
	not _is_open(pod, spec, "nodeAffinity", half)
	patterns := array.concat(
		nodes.patterns(_patterns(spec, "allowed", "nodeAffinity", half)),
		nodes.patterns(_patterns(spec, "required", "nodeAffinity", half)),
	)
	some found in nodes.unlisted(terms, patterns, _given(spec, half))
	message := sprintf("spec.affinity.nodeAffinity.%s%s is not allowed", [half, found])
}

_denied_peers(pod, spec) := {message |
	pod.affinity != {} # as of most pods
	some kind in ["podAffinity", "podAntiAffinity"]
	some half in _halves
	terms := peers.terms(pod, kind, half)
	not _is_open(pod, spec, kind, half)
	patterns := array.concat(
		peers.patterns(_patterns(spec, "allowed", kind, half)),
		peers.patterns(_patterns(spec, "required", kind, half)),
	)
	some found in peers.unlisted(terms, patterns)
	message := sprintf("spec.affinity.%s.%s%s is not allowed", [kind, half, found])
}

# What the default says, which Kubernetes requires beside what else the term says.
_given(spec, "requiredDuringSchedulingIgnoredDuringExecution") := nodes.expressions_of(object.get(
	spec,
	["default", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"],
	null,
))

_given(_, "preferredDuringSchedulingIgnoredDuringExecution") := set()

# Null where a section does not speak of the half.
_patterns(spec, section, kind, half) := object.get(spec, [section, "affinities", _plural[kind], half], null)

_all(spec, "allowed", _, _) if spec.allowed.affinities == {}

_all(spec, section, kind, _) if spec[section].affinities[_plural[kind]] == {}

_all(spec, section, kind, half) if spec[section].affinities[_plural[kind]][half] == {}

_is_open(_, spec, kind, half) if _all(spec, "allowed", kind, half)

_is_open(_, spec, kind, half) if _all(spec, "required", kind, half)

# A default is allowed as it is and whole; a part of it may mean something else.
_is_open(pod, spec, kind, half) if pod.affinity[kind][half] == spec["default"].affinity[kind][half]

_is_open(pod, spec, kind, half) if {
	kind != "nodeAffinity"
	given := spec["default"].affinity[kind][half]
	peers.without_own_labels(pod, half, pod.affinity[kind][half]) == peers.without_own_labels(pod, half, given)
}

_missing(pod, spec) := {message |
	some kind, plural in _plural
	not _was_judged(pod, kind)
	halves := spec.required.affinities[plural]
	some lack in _lacks(pod, kind, halves, spec)
	message := sprintf("spec.affinity.%s%s", [kind, lack])
}

# {} requires some affinity of this kind, whatever it says.
_lacks(pod, kind, {}, _) := {": is required" |
	every half in _halves {
		count(_terms(pod, kind, half)) == 0
	}
}

_lacks(pod, kind, halves, spec) := {lack |
	some half, wanted in halves
	terms := _terms(pod, kind, half)
	some missing in _unmet(kind, terms, wanted, _are_alternatives(pod, kind, half, spec))
	lack := sprintf(".%s: %s", [half, missing])
} if {
	halves != {}
}

_was_judged(pod, "nodeAffinity") if pod.nodes_were_judged

# Kubernetes follows any one of the required terms for nodes, so each has to have all that a policy
# requires. Preferred ones, and terms for pods, count all together. A default is as its policy has
# it: whoever wrote it chose between its terms.
_are_alternatives(pod, "nodeAffinity", half, spec) if {
	half == "requiredDuringSchedulingIgnoredDuringExecution"
	not _is_the_default(pod, half, spec)
}

default _are_alternatives(_, _, _, _) := false

_is_the_default(pod, half, spec) if nodes.hard_terms(pod.affinity) == spec["default"].affinity.nodeAffinity[half].nodeSelectorTerms

_unmet(_, terms, {}, _) := {"is required" | count(terms) == 0}

_unmet("nodeAffinity", terms, wanted, every_term) := nodes.unmet(terms, nodes.patterns(wanted), every_term) if wanted != {}

_unmet(kind, terms, wanted, _) := peers.unmet(terms, peers.patterns(wanted)) if {
	kind != "nodeAffinity"
	wanted != {}
}

_terms(pod, "nodeAffinity", half) := nodes.terms(pod.affinity, half)

_terms(pod, kind, half) := peers.terms(pod, kind, half) if kind != "nodeAffinity"
