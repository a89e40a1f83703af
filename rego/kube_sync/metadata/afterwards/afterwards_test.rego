package kube_sync.metadata.afterwards_test

import data.kube_sync.metadata.afterwards

rule(selector, action) := {"policyPredicate": {"labelSelector": selector}, "policyAction": action}

exists(key) := {"matchExpressions": [{"key": key, "operator": "Exists"}]}

absent(key) := {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}

default_tier := rule(absent("tier"), {"updatedLabels": {"tier": "front"}})

forbid_tier := rule(exists("tier"), {"reject": true})

rejected(rules, labels) := [one.index | some one in found] if {
	found := afterwards.rejecting("shop", {"labels": labels, "annotations": {}}) with data.kubernetes.metadatapolicies as {"shop": {"a": {"spec": {"rules": rules}}}}
}

test_what_a_rule_has_set_is_not_held_against_the_object if {
	rejected([default_tier, forbid_tier], {"tier": "front"}) == []
}

test_what_another_has_set_is if {
	rejected([default_tier, forbid_tier], {"tier": "back"}) == [1]
	rejected([forbid_tier], {"tier": "front"}) == [0]
	rejected([default_tier, rule(absent("team"), {"reject": true})], {"tier": "front"}) == [1]
}

test_what_came_in_may_have_been_overwritten if {
	forced := rule({}, {"updatedLabels": {"tier": "front"}})
	not_back := {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]}
	rejected([forced, rule(not_back, {"reject": true})], {"tier": "front"}) == []
}

test_rule_that_sets_nothing_excuses_nothing if {
	voided := rule({}, {"reject": true, "updatedLabels": {"tier": "front"}})
	rejected([voided, forbid_tier], {"tier": "front"}) == [0, 1]
	broken := rule({}, {"updatedLabels": {"tier": "front"}, "more": 1})
	rejected([broken, forbid_tier], {"tier": "front"}) == [1]
}

test_where_nothing_rejects_nothing_is_rejected if {
	rejected([default_tier], {"tier": "front"}) == []
	afterwards.rejecting("", {"labels": {}, "annotations": {}}) == []
}

test_labels_and_annotations_of_one_name_are_two_things if {
	noted := rule({}, {"updatedAnnotations": {"tier": "front"}})
	found := afterwards.rejecting("shop", {"labels": {"tier": "front"}, "annotations": {"tier": "front"}}) with data.kubernetes.metadatapolicies as {"shop": {"a": {"spec": {"rules": [noted, forbid_tier]}}}}
	[f.index | some f in found] == [1]
}
