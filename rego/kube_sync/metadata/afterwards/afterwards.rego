# METADATA
# title: Rejections afterwards
# description: |
#   What rules still reject once an object is as it will be stored. Rules are about the object as it
#   came in, which is not to be had any more: so no rule is held against an object that looks at what
#   a rule of the same namespace may have set. Else a default, and beside it a rule that forbids its
#   key, would refuse every object that got the default.
package kube_sync.metadata.afterwards

import data.kube_sync.metadata.rules
import data.kube_sync.metadata.selector

_selectors := {"labels": "labelSelector", "annotations": "annotationSelector"}

# METADATA
# description: |
#   The rules that reject an object with these `maps` (its labels and annotations), none of which looks
#   at anything that the rules of the namespace set
rejecting(namespace, maps) := _foreign(namespace, found, maps) if {
	found := rules.rejecting(rules.matching(namespace, maps.labels, maps.annotations))
}

_foreign(_, [], _) := []

_foreign(namespace, list, maps) := [found |
	some found in list
	not _looks_at(found.rule.policyPredicate, own)
] if {
	list != []
	own := _own(namespace, maps)
}

_looks_at(predicate, own) if {
	some field, selected in _selectors
	some expression in selector.expressions(object.get(predicate, selected, null))
	[field, expression.key] in own
}

# The keys of the object that have a value which a rule of its namespace sets.
_own(namespace, maps) := {[field, key] |
	some field, _ in _selectors
	some name, i
	rule := data.kubernetes.metadatapolicies[namespace][name].spec.rules[i]
	some key, value in rules.updates_of(rule, field)
	maps[field][key] == value
	not rule.policyAction.reject
	count(rules.faults(rule)) == 0
}
