package kube_sync.metadata.validation_test

import data.kube_sync.metadata.validation

paths(spec) := [problem.path | some problem in validation.problems({"spec": spec})]

rule := {"policyPredicate": {}, "policyAction": {"reject": true}}

test_policy_as_it_should_be_has_no_problems if {
	every spec in [{}, {"rules": []}, {"rules": null}, {"rules": [rule]}, {"rules": [{
		"policyPredicate": {"labelSelector": null, "annotationSelector": {}},
		"policyAction": {"updatedLabels": {"a": "1"}, "updatedAnnotations": {"B.c/d": "any thing"}},
	}]}] {
		paths(spec) == []
	}
	validation.problems({}) == []
}

test_shapes_that_are_none_are_problems if {
	validation.problems([]) == [{"path": "", "message": "must be an object"}]
	paths([]) == ["spec"]
	paths({"rules": {}}) == ["spec.rules"]
	paths({"rules": [1]}) == ["spec.rules[0]"]
	paths({"rules": [{}]}) == ["spec.rules[0].policyAction", "spec.rules[0].policyPredicate"]
	paths({"rules": [rule], "rule": [], "x": 1}) == ["spec.rule", "spec.x"]
}

changed(path, value) := paths({"rules": [json.patch(rule, [{"op": "add", "path": path, "value": value}])]})

test_fields_that_nobody_reads_are_problems if {
	changed("action", 1) == ["spec.rules[0].action"]
	changed("policyPredicate/labels", {}) == ["spec.rules[0].policyPredicate.labels"]
	changed("policyAction/updateLabels", {}) == ["spec.rules[0].policyAction.updateLabels"]
}

test_actions_that_the_api_server_would_refuse_are_problems if {
	changed("policyAction/reject", "true") == ["spec.rules[0].policyAction.reject"]
	changed("policyAction/updatedLabels", []) == ["spec.rules[0].policyAction.updatedLabels"]
	changed("policyAction/updatedLabels", {"a": "1 2"}) == ["spec.rules[0].policyAction.updatedLabels"]
	changed("policyAction/updatedLabels", {"a b": "1"}) == ["spec.rules[0].policyAction.updatedLabels"]
	changed("policyAction/updatedAnnotations", {"a b": "1"}) == ["spec.rules[0].policyAction.updatedAnnotations"]
	changed("policyAction/updatedAnnotations", {"a": 1}) == ["spec.rules[0].policyAction.updatedAnnotations"]
}

test_selectors_with_faults_are_problems if {
	changed("policyPredicate/annotationSelector", 1) == ["spec.rules[0].policyPredicate.annotationSelector"]
	changed("policyPredicate/labelSelector", {"matchExpressions": [{"key": "a", "operator": "In"}]}) == [
		"spec.rules[0].policyPredicate.labelSelector.matchExpressions[0].values",
	]
}

test_report_has_problems_and_findings if {
	answer := validation.report with input as {"object": {"spec": {"rules": [1]}}}
	answer == {
		"problems": [{"path": "spec.rules[0]", "message": "must be an object"}],
		"findings": [],
	}
	nothing := validation.report with input as null
	nothing == {"problems": [], "findings": []}
}
