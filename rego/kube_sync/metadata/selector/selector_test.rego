package kube_sync.metadata.selector_test

import data.kube_sync.metadata.selector

needs(key, operator, values) := {"key": key, "operator": operator, "values": values}

met(expression) if selector.met([expression], {"a": "1", "empty": ""})

test_operators_are_those_of_kubernetes if {
	met(needs("a", "In", ["0", "1"]))
	met(needs("empty", "In", [""]))
	not met(needs("a", "In", ["2"]))
	not met(needs("absent", "In", [""]))
	met(needs("a", "NotIn", ["2"]))
	met(needs("absent", "NotIn", ["2"]))
	not met(needs("a", "NotIn", ["1"]))
	met(needs("empty", "Exists", []))
	not met(needs("absent", "Exists", []))
	met(needs("absent", "DoesNotExist", []))
	not met(needs("empty", "DoesNotExist", []))
	not met(needs("a", "Is", []))
}

test_values_that_are_no_strings_exist_and_equal_none if {
	map := {"n": 1, "no": false, "null": null}
	every key in ["n", "no", "null"] {
		selector.met([needs(key, "Exists", [])], map)
		selector.met([needs(key, "NotIn", ["1", "false", "null"])], map)
		not selector.met([needs(key, "In", ["1", "false", "null"])], map)
	}
}

test_all_expressions_must_be_met if {
	selector.met([], {})
	not selector.met([needs("a", "Exists", []), needs("b", "Exists", [])], {"a": "1"})
}

test_selector_is_a_list_of_expressions if {
	selector.expressions(null) == []
	selector.expressions({}) == []
	selector.expressions({"matchLabels": {"a": "1"}, "matchExpressions": [needs("b", "Exists", [])]}) == [
		needs("a", "In", ["1"]),
		needs("b", "Exists", []),
	]
}

test_selector_as_kubernetes_takes_it_has_no_faults if {
	every given in [null, {}, {"matchLabels": {"a": ""}}, {"matchExpressions": [
		needs("example.com/a", "In", ["1"]),
		{"key": "a", "operator": "Exists"},
		{"key": "a", "operator": "DoesNotExist", "values": null},
	]}] {
		selector.faults("label", given) == set()
	}
}

test_selector_that_kubernetes_refuses_has_faults if {
	every given, path in {
		[]: "",
		"x": "",
		{"matchLabel": {}}: ".matchLabel",
		{"matchLabels": []}: ".matchLabels",
		{"matchLabels": null}: ".matchLabels",
		{"matchLabels": {"a b": "1"}}: ".matchLabels",
		{"matchLabels": {"a": "1 2"}}: ".matchLabels",
		{"matchExpressions": {}}: ".matchExpressions",
		{"matchExpressions": ["x"]}: ".matchExpressions[0]",
		{"matchExpressions": [{"key": "a", "operator": "Exists", "value": "1"}]}: ".matchExpressions[0].value",
		{"matchExpressions": [{"operator": "Exists"}]}: ".matchExpressions[0].key",
		{"matchExpressions": [{"key": "a"}]}: ".matchExpressions[0].operator",
		{"matchExpressions": [{"key": "a", "operator": "in"}]}: ".matchExpressions[0].operator",
		{"matchExpressions": [{"key": "a", "operator": "In"}]}: ".matchExpressions[0].values",
		{"matchExpressions": [needs("a", "In", [])]}: ".matchExpressions[0].values",
		{"matchExpressions": [needs("a", "NotIn", "1")]}: ".matchExpressions[0].values",
		{"matchExpressions": [needs("a", "In", ["1 2"])]}: ".matchExpressions[0].values[0]",
		{"matchExpressions": [needs("a", "Exists", ["1"])]}: ".matchExpressions[0].values",
	} {
		{found | some [found, _] in selector.faults("label", given)} == {path}
	}
}

test_values_of_annotations_are_free if {
	selector.faults("annotation", {"matchLabels": {"a": "1 2"}}) == set()
	selector.faults("annotation", {"matchExpressions": [needs("a", "In", ["1 2"])]}) == set()
}

test_contradictions_are_found if {
	every list in [
		[needs("a", "Exists", []), needs("a", "DoesNotExist", [])],
		[needs("a", "In", ["1"]), needs("a", "DoesNotExist", [])],
		[needs("a", "In", ["1"]), needs("a", "In", ["2"])],
		[needs("a", "In", ["1", "2"]), needs("a", "NotIn", ["2", "1"])],
	] {
		selector.contradictory(list)
	}
	every list in [
		[],
		[needs("a", "Exists", []), needs("b", "DoesNotExist", [])],
		[needs("a", "NotIn", ["1"]), needs("a", "DoesNotExist", [])],
		[needs("a", "NotIn", ["1"]), needs("a", "Exists", [])],
		[needs("a", "In", ["1", "2"]), needs("a", "In", ["2"]), needs("a", "NotIn", ["1"])],
	] {
		not selector.contradictory(list)
	}
}

test_expressions_are_said if {
	selector.said("label", needs("a", "In", ["1"])) == `label "a" in ["1"]`
	selector.said("label", needs("a", "NotIn", ["1"])) == `label "a" not in ["1"]`
	endswith(selector.said("label", needs("a", "In", [sprintf("value-%d", [n]) | some n in numbers.range(1, 40)])), "…")
	selector.said("annotation", needs("a", "Exists", [])) == `annotation "a" exists`
	selector.said("annotation", needs("a", "DoesNotExist", [])) == `annotation "a" does not exist`
}
