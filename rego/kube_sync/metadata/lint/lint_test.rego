package kube_sync.metadata.lint_test

import data.kube_sync.metadata.lint

needs(key, operator, values) := {"key": key, "operator": operator, "values": values}

rule(expressions, action) := {
	"policyPredicate": {"labelSelector": {"matchExpressions": expressions}},
	"policyAction": action,
}

set_label(values) := {"updatedLabels": values}

absent := needs("x", "DoesNotExist", [])

present := needs("x", "Exists", [])

named(name, rules) := {"metadata": {"name": name, "namespace": "shop"}, "spec": {"rules": rules}}

# The reasons found in these rules, with others stored beside them.
reasons(rules, others) := [finding.reason | some finding in found] if {
	found := lint.findings(named("own", rules)) with data.kubernetes.metadatapolicies as {"shop": {"other": named("other", others)}}
}

test_rule_that_can_never_match_is_found if {
	reasons([rule([absent, present], set_label({"a": "1"}))], []) == ["NeverMatches"]
	reasons([rule([absent], set_label({"a": "1"}))], []) == []
}

test_label_and_annotation_of_one_key_do_not_contradict_each_other if {
	apart := {
		"policyPredicate": {
			"labelSelector": {"matchExpressions": [present]},
			"annotationSelector": {"matchExpressions": [absent]},
		},
		"policyAction": {"updatedAnnotations": {"a": "1"}},
	}
	reasons([apart, rule([], set_label({"a": "2"}))], []) == []
}

test_two_values_of_one_key_are_found if {
	reasons([rule([], set_label({"a": "1"}))], [rule([], set_label({"a": "2"}))]) == ["ConflictingValues"]
	reasons([rule([], set_label({"a": "1"})), rule([], set_label({"a": "2"}))], []) == ["ConflictingValues", "ConflictingValues"]
	reasons([rule([], set_label({"a": "1"}))], [rule([], set_label({"a": "1"}))]) == []
	reasons([rule([], set_label({"a": "1"}))], [rule([], {"reject": true, "updatedLabels": {"a": "2"}})]) == []
}

of(value) := rule([needs("class", "In", [value])], set_label({"a": value}))

test_rules_for_different_objects_do_not_conflict if {
	reasons([of("1"), of("2")], [of("3")]) == []
}

test_default_that_another_rule_rejects_is_found if {
	defaulting := rule([absent], set_label({"x": "1"}))
	reasons([defaulting], [rule([present], {"reject": true})]) == ["DefaultRejected"]
	reasons([rule([present], {"reject": true})], [defaulting]) == ["DefaultRejected"]
	reasons([defaulting, rule([needs("x", "In", ["1"])], {"reject": true})], []) == ["DefaultRejected", "DefaultRejected"]
	reasons([defaulting, rule([needs("x", "NotIn", ["2"])], {"reject": true})], []) == []
	reasons([rule([needs("x", "In", ["2"])], set_label({"x": "1"}))], [rule([needs("x", "NotIn", ["2"])], {"reject": true})]) == ["DefaultRejected"]
}

test_default_that_no_rule_rejects_is_not_found if {
	defaulting := rule([absent], set_label({"x": "1"}))
	every rejecting in [
		rule([absent], {"reject": true}),
		rule([needs("y", "Exists", [])], {"reject": true}),
		rule([needs("x", "In", ["2"])], {"reject": true}),
		rule([needs("x", "NotIn", ["1"])], {"reject": true}),
		rule([], {"reject": true}),
	] {
		reasons([defaulting], [rejecting]) == []
	}
	overwriting := rule([present], set_label({"x": "1"}))
	reasons([overwriting], [rule([present], {"reject": true})]) == []
	apart := rule([absent, needs("y", "Exists", [])], set_label({"x": "1"}))
	reasons([apart], [rule([present, needs("y", "DoesNotExist", [])], {"reject": true})]) == []
}

test_rules_with_faults_are_left_out if {
	reasons([rule([absent, present], {"reject": 1}), 7], [rule([], 1)]) == []
}

test_policy_is_not_compared_with_how_it_was if {
	before := named("own", [rule([], set_label({"a": "2"}))])
	found := lint.findings(named("own", [rule([], set_label({"a": "1"}))])) with data.kubernetes.metadatapolicies as {"shop": {"own": before}}
	found == []
}

test_finding_names_both_rules if {
	found := lint.findings(named("own", [rule([], set_label({"a": "1"}))])) with data.kubernetes.metadatapolicies as {"shop": {"other": named("other", [rule([], set_label({"a": "2"}))])}}
	found == [{
		"path": "spec.rules[0]",
		"reason": "ConflictingValues",
		"message": `sets label "a" to another value than metadata policy "other", rule 0, on the same objects`,
	}]
}

test_what_is_no_policy_has_no_findings if {
	lint.findings(1) == []
	lint.findings({"spec": 1}) == []
}

test_rejection_by_a_plain_label_is_found_beside_rules_of_no_concern if {
	rejecting := {"policyPredicate": {"labelSelector": {"matchLabels": {"x": "1"}}}, "policyAction": {"reject": true}}
	others := [null, {"policyAction": {"reject": true}}, rule([], set_label({"y": "2"})), rejecting]
	reasons([rule([absent], set_label({"x": "1"}))], others) == ["DefaultRejected"]
	reasons([rule([absent], set_label({"z": "1"}))], others) == []
}
