# METADATA
# title: Affinities
# description: |
#   Each kind of affinity has two halves, what is required of a node and what is preferred; a half
#   needs permission once it has a term. Node affinity is judged expression by expression, and pod
#   affinity and anti-affinity term by term, each against one pattern whole.
package kube_sync.scheduling.affinities

import data.kube_sync.scheduling.affinities.nodes
import data.kube_sync.scheduling.affinities.peers
import data.kube_sync.scheduling.settings

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
	some found in nodes.unlisted(terms, patterns)
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
	halves := spec.required.affinities[plural]
	some lack in _lacks(pod, kind, halves)
	message := sprintf("spec.affinity.%s%s", [kind, lack])
}

# {} requires some affinity of this kind, whatever it says.
_lacks(pod, kind, {}) := {": is required" |
	every half in _halves {
		count(_terms(pod, kind, half)) == 0
	}
}

_lacks(pod, kind, halves) := {lack |
	some half, wanted in halves
	terms := _terms(pod, kind, half)
	some missing in _unmet(kind, terms, wanted)
	lack := sprintf(".%s: %s", [half, missing])
} if {
	halves != {}
}

_unmet(_, terms, {}) := {"is required" | count(terms) == 0}

_unmet("nodeAffinity", terms, wanted) := nodes.unmet(terms, nodes.patterns(wanted), settings.strict_affinity) if wanted != {}

_unmet(kind, terms, wanted) := peers.unmet(terms, peers.patterns(wanted)) if {
	kind != "nodeAffinity"
	wanted != {}
}

_terms(pod, "nodeAffinity", half) := nodes.terms(pod.affinity, half)

_terms(pod, kind, half) := peers.terms(pod, kind, half) if kind != "nodeAffinity"
