# METADATA
# title: Rules on metadata
# description: |
#   What the rules of a namespace's MetadataPolicies do with labels and annotations: all rules look at
#   the same ones, those of the object as it came in, so that their order does not matter. One that
#   rejects is enough, and then nothing is changed. Of two that set one key the later one wins, by the
#   name of the policy and then by the place in it.
package kube_sync.metadata.rules

import data.kube_sync.metadata.selector
import data.kube_sync.metadata.syntax

_kinds := {"labels": "label", "annotations": "annotation"}

_updates := {"labels": "updatedLabels", "annotations": "updatedAnnotations"}

# METADATA
# description: |
#   The rules of the namespace's policies, by name and then in their order, whose predicates these
#   labels and annotations meet. Rules with faults apply to nothing; faults are looked for only in
#   those that would apply.
matching(namespace, labels, annotations) := [found |
	some name, i

	# Handed over as an argument, OPA would read all policies whole, which takes twice as long.
	rule := data.kubernetes.metadatapolicies[namespace][name].spec.rules[i]

	# Of the hundreds that a namespace may have, most end at the first of these two.
	object.subset(labels, object.get(rule, ["policyPredicate", "labelSelector", "matchLabels"], {}))
	object.subset(
		annotations,
		object.get(rule, ["policyPredicate", "annotationSelector", "matchLabels"], {}),
	)
	selector.met(object.get(rule, ["policyPredicate", "labelSelector", "matchExpressions"], []), labels)
	selector.met(
		object.get(rule, ["policyPredicate", "annotationSelector", "matchExpressions"], []),
		annotations,
	)
	count(faults(rule)) == 0
	found := {"policy": name, "index": i, "rule": rule}
]

# METADATA
# description: Of matching rules, those that reject
rejecting(rules) := [found | some found in rules; found.rule.policyAction.reject == true]

# METADATA
# description: The labels and annotations that matching rules set, of which none rejects
updates(rules) := {field: object.union_n(changes) |
	some field, _ in _kinds
	changes := [updates_of(found.rule, field) | some found in rules]
}

# METADATA
# description: The `labels` or `annotations` that a rule sets
updates_of(rule, field) := map if {
	map := rule.policyAction[_updates[field]]
	is_object(map)
} else := {}

# METADATA
# description: Why a matching rule rejects
rejection(found) := sprintf("metadata policy %q, rule %d: rejects objects with %s", [
	found.policy,
	found.index,
	said(found.rule.policyPredicate),
])

# METADATA
# description: What each matching rule sets, and where another one has the last word
accounts(rules) := [account |
	some found in rules
	some field, kind in {"annotations": "annotation", "labels": "label"}
	some key, value in updates_of(found.rule, field)
	account := sprintf("metadata policy %q, rule %d: sets %s %q to %s on objects with %s%s", [
		found.policy,
		found.index,
		kind,
		key,
		_shown(value),
		said(found.rule.policyPredicate),
		_overruled(value, rules, field, key),
	])
]

_overruled(value, rules, field, key) := sprintf("; conflict: metadata policy %q, rule %d has the last word", [
	last.policy,
	last.index,
]) if {
	setting := [found | some found in rules; _sets(found.rule, field, key)]
	last := setting[count(setting) - 1]
	updates_of(last.rule, field)[key] != value
} else := ""

_sets(rule, field, key) if is_string(updates_of(rule, field)[key])

# METADATA
# description: A predicate as a person would say it
said(predicate) := concat(" and ", parts) if {
	parts := _parts(predicate)
	parts != []
} else := "any metadata"

_parts(predicate) := [selector.said(kind, expression) |
	some [field, kind] in [["labelSelector", "label"], ["annotationSelector", "annotation"]]
	some expression in selector.expressions(object.get(predicate, field, null))
]

_shown(value) := substring(json.marshal(value), 0, 80)

# METADATA
# description: |
#   What is wrong with a rule, as pairs of the path below it and a message: no selector that Kubernetes
#   takes, a field that nobody reads, or labels and annotations that the API server would refuse, of
#   which the author of an object would hear.
faults(rule) := {["", "must be an object"]} if not is_object(rule)

faults(rule) := (unknown | _predicate_faults(_part(rule, "policyPredicate"))) | _action_faults(_part(rule, "policyAction")) if {
	is_object(rule)
	unknown := _unknown("", "a rule", rule, {"policyPredicate", "policyAction"})
}

_part(rule, field) := object.get(rule, field, null)

_predicate_faults(predicate) := {[".policyPredicate", "must be an object"]} if not is_object(predicate)

_predicate_faults(predicate) := unknown | wrong if {
	is_object(predicate)
	unknown := _unknown(".policyPredicate", "a predicate", predicate, {"labelSelector", "annotationSelector"})
	wrong := {[sprintf(".policyPredicate.%s%s", [field, path]), message] |
		some [field, kind] in [["labelSelector", "label"], ["annotationSelector", "annotation"]]
		some [path, message] in selector.faults(kind, object.get(predicate, field, null))
	}
}

_action_faults(action) := {[".policyAction", "must be an object"]} if not is_object(action)

_action_faults(action) := ((unknown | reject) | shapes) | wrong if {
	is_object(action)
	unknown := _unknown(".policyAction", "an action", action, {"reject", "updatedLabels", "updatedAnnotations"})
	reject := {[".policyAction.reject", "must be true or false"] |
		not is_boolean(object.get(action, "reject", false))
	}
	shapes := {[sprintf(".policyAction.%s", [field]), "must be an object"] |
		some field in _updates
		given := object.get(action, field, null)
		given != null
		not is_object(given)
	}
	wrong := {[sprintf(".policyAction.%s", [_updates[field]]), message] |
		some field, kind in _kinds
		some key, value in updates_of({"policyAction": action}, field)
		some message in _entry_faults(kind, key, value)
	}
}

_entry_faults(kind, key, value) := syntax.key_faults_of(kind, key) | syntax.value_faults_of(kind, value)

_unknown(path, what, value, known) := {[sprintf("%s.%s", [path, field]), sprintf("is no field of %s", [what])] |
	some field, _ in value
	not field in known
}
