package kube_sync.metadata.rules_test

import data.kube_sync.metadata.rules

rule(predicate, action) := {"policyPredicate": predicate, "policyAction": action}

both := {
	"labelSelector": {"matchLabels": {"app": "web"}},
	"annotationSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]},
}

matching(predicate, labels, annotations) := found if {
	found := rules.matching("shop", labels, annotations) with data.kubernetes.metadatapolicies as {"shop": {"p": {"spec": {"rules": [rule(predicate, {})]}}}}
}

test_both_selectors_must_be_met if {
	count(matching(both, {"app": "web"}, {"tier": "gold"})) == 1
	matching(both, {"app": "web"}, {"tier": "lead"}) == []
	matching(both, {"app": "db"}, {"tier": "gold"}) == []
	matching(both, {}, {}) == []
}

test_absent_and_empty_selectors_ask_for_nothing if {
	every predicate in [{}, {"labelSelector": null}, {"labelSelector": {}}, {"annotationSelector": {"matchLabels": {}}}] {
		count(matching(predicate, {}, {})) == 1
		count(matching(predicate, {"a": "1"}, {"b": "2"})) == 1
	}
}

test_found_rule_has_its_place if {
	matching({}, {}, {}) == [{"policy": "p", "index": 0, "rule": rule({}, {})}]
}

test_predicate_is_said_whole if {
	rules.said(both) == `label "app" in ["web"] and annotation "tier" in ["gold","silver"]`
	rules.said({}) == "any metadata"
}

test_null_updates_are_none if {
	rules.updates_of(rule({}, {"updatedLabels": null}), "labels") == {}
	rules.faults(rule({}, {"updatedLabels": null})) == set()
}
