# METADATA
# title: Lint of MetadataPolicies
# description: |
#   Rules that are well formed and cannot be meant: that set one key to different values on one object,
#   that make an object such as another rule rejects, or that no object can meet. Rules with faults are
#   left out. Sound: each finding can happen, or never can, exactly as it says.
package kube_sync.metadata.lint

import data.kube_sync.metadata.rules
import data.kube_sync.metadata.selector

# METADATA
# description: |
#   The findings about this policy among the others of its namespace, as a sorted list of objects with
#   `path`, `reason` (NeverMatches, ConflictingValues or DefaultRejected) and `message`
findings(policy) := sort(((_never(own) | _conflicts(own, all)) | _forbidden(own, all))) if {
	name := object.get(policy, ["metadata", "name"], "")
	own := _sound(name, policy)
	sets := {key | some found in own; some key, _ in _sets(found.rule)}
	asks := {asked.key | some found in own; some asked in found.asks}
	all := array.concat(own, [found |
		some other, i
		rule := data.kubernetes.metadatapolicies[policy.metadata.namespace][other].spec.rules[i]
		other != name

		# Of the hundreds that a namespace may have, most end here; to look for faults takes longer.
		_concerns(rule, sets, sets | asks)
		some found in _sound_rule(other, i, rule)
	])
} else := []

_fields := {
	"labels": {"updates": "updatedLabels", "selector": "labelSelector"},
	"annotations": {"updates": "updatedAnnotations", "selector": "annotationSelector"},
}

# A rule that sets one of these keys, or rejects by one that is set.
_concerns(rule, _, keys) if {
	some [field, key] in keys
	_ = rule.policyAction[_fields[field].updates][key]
}

_concerns(rule, sets, _) if {
	_ = rule.policyAction.reject
	some [field, key] in sets
	_names(rule.policyPredicate[_fields[field].selector], key)
}

_names(given, key) if _ = given.matchLabels[key]

_names(given, key) if {
	some expression in given.matchExpressions
	expression.key == key
}

# The rules without faults, each with what it asks for, of which its words are made.
_sound(name, policy) := [found |
	some i, rule in policy.spec.rules
	some found in _sound_rule(name, i, rule)
]

_sound_rule(name, i, rule) := {found |
	count(rules.faults(rule)) == 0
	found := {"policy": name, "index": i, "rule": rule, "asks": _asks(rule.policyPredicate)}
}

# Labels and annotations are different keys.
_asks(predicate) := [object.union(expression, {"key": [field, expression.key]}) |
	some [field, name] in [["labels", "labelSelector"], ["annotations", "annotationSelector"]]
	some expression in selector.expressions(object.get(predicate, name, null))
]

_never(own) := {finding |
	some found in own
	selector.contradictory(found.asks)
	finding := _finding(found, "NeverMatches", "no object can match")
}

_conflicts(own, all) := {finding |
	some found in own
	not _rejects(found)
	some other in all
	_place(other) != _place(found)
	not _rejects(other)
	some [field, kind] in [["labels", "label"], ["annotations", "annotation"]]
	some key, value in rules.updates_of(found.rule, field)
	rules.updates_of(other.rule, field)[key] != value
	not selector.contradictory(array.concat(found.asks, other.asks))
	finding := _finding(found, "ConflictingValues", sprintf("sets %s %q to another value than %s on the same objects", [
		kind,
		key,
		_named(other),
	]))
}

# A default of this policy and a rejection of any, or a rejection of this one and a default of another.
_forbidden(own, all) := {finding |
	some [found, defaulting, rejecting] in array.concat(
		[[found, found, other] | some found in own; some other in all],
		[[found, other, found] | some found in own; some other in all],
	)
	not _rejects(defaulting)
	_rejects(rejecting)
	_made(defaulting, rejecting)
	finding := _finding(found, "DefaultRejected", sprintf("%s sets what %s rejects: a later update of the object fails", [
		_named(defaulting),
		_named(rejecting),
	]))
}

# The object that one rule has changed meets the other, by a key that was changed, as it did not before.
_made(defaulting, rejecting) if {
	sets := _sets(defaulting.rule)
	about := [asked | some asked in rejecting.asks; sets[asked.key]]
	count(about) > 0
	every asked in about { _meets(asked, sets[asked.key]) }
	rest := [asked | some asked in rejecting.asks; not sets[asked.key]]
	not selector.contradictory(array.concat(defaulting.asks, rest))
	not _rejected_already(array.concat(defaulting.asks, rest), about)
}

# What all objects that match have anyway is no work of the rule.
_rejected_already(asks, about) if {
	every asked in about { selector.contradictory(array.concat(asks, [_negated(asked)])) }
}

# What a rule sets is there, so none of these asks for its absence.
_negated(asked) := {"key": asked.key, "operator": "NotIn", "values": asked.values} if asked.operator == "In"

_negated(asked) := {"key": asked.key, "operator": "In", "values": asked.values} if asked.operator == "NotIn"

_negated(asked) := {"key": asked.key, "operator": "DoesNotExist"} if asked.operator == "Exists"

_meets(asked, value) if {
	asked.operator == "In"
	value in asked.values
}

_meets(asked, value) if {
	asked.operator == "NotIn"
	not value in asked.values
}

_meets(asked, _) if asked.operator == "Exists"

_sets(rule) := {[field, key]: value |
	some field in ["labels", "annotations"]
	some key, value in rules.updates_of(rule, field)
}

_rejects(found) if found.rule.policyAction.reject == true

_place(found) := [found.policy, found.index]

_named(found) := sprintf("metadata policy %q, rule %d,", [found.policy, found.index])

_finding(found, reason, message) := {
	"path": sprintf("spec.rules[%d]", [found.index]),
	"reason": reason,
	"message": message,
}
