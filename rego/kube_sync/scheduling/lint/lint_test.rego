package kube_sync.scheduling.lint_test

import data.kube_sync.scheduling.validation

hard := "requiredDuringSchedulingIgnoredDuringExecution"

findings(spec) := report.findings if {
	report := validation.report with input as {"object": {"spec": object.union({"allowed": {"schedulerNames": []}}, spec)}}
	report.problems == []
}

term(expression) := {"matchExpressions": [expression]}

found(spec, text) if {
	some finding in findings(spec)
	contains(finding, text)
}

test_sound_policy_has_no_findings if {
	findings({}) == []
	findings({
		"required": {"nodeSelectors": {"arch": ["amd64"]}},
		"allowed": {"tolerations": [{"keys": ["a"], "operators": ["Exists"], "effects": ["NoSchedule"]}, {"keys": [], "operators": [], "values": [], "effects": []}]},
		"default": {"nodeSelector": {"arch": "amd64"}},
	}) == []
}

test_terms_that_kubernetes_ors_are_found if {
	arch := {"keys": ["arch"], "operators": ["In"], "values": ["amd64"]}
	os := {"keys": ["os"], "operators": ["In"], "values": ["linux"]}
	terms := {hard: {"nodeSelectorTerms": [term(arch), term(os)]}}
	found({"required": {"affinities": {"nodeAffinities": terms}}}, "spec.required.affinities.nodeAffinities")
	found({"default": {"affinity": {"nodeAffinity": terms}}}, "any one of several terms")
	findings({"allowed": {"schedulerNames": [], "affinities": {"nodeAffinities": terms}}}) == []
}

test_default_that_its_own_policy_denies_is_found if {
	found({"required": {"schedulerNames": ["a"]}, "default": {"schedulerName": "b"}}, "spec.default: does not satisfy spec.required: spec.schedulerName")
	found({"required": {"priorityClasseNames": ["a"]}, "default": {"priorityClasseName": "b"}}, "spec.priorityClassName")
	found({"required": {"nodeSelectors": {"a": ["b"]}}, "default": {"nodeSelector": {"a": "c"}}}, "spec.nodeSelector[a]")
	found(
		{
			"required": {"affinities": {"podAntiAffinities": {hard: {}}}},
			"default": {"affinity": {"podAffinity": {hard: [{"topologyKey": "zone"}]}}},
		},
		"spec.affinity.podAntiAffinity",
	)
	findings({"required": {"schedulerNames": ["a"]}, "default": {"schedulerName": "a"}}) == []
}

test_patterns_that_nothing_fits_are_found if {
	every text, pattern in {
		"keys: absent": {"operators": ["Exists"], "effects": []},
		"effects: absent": {"keys": ["a"], "operators": ["Exists"]},
		"operators: none is one of Kubernetes's": {"keys": ["a"], "operators": ["In"], "effects": []},
		"effects: none is one of Kubernetes's": {"keys": ["a"], "operators": ["Exists"], "effects": ["noschedule"]},
		"values: listed, but Exists has none": {"keys": ["a"], "operators": ["Exists"], "values": ["b"], "effects": []},
	} {
		found({"allowed": {"schedulerNames": [], "tolerations": [pattern]}}, text)
	}
	found({"required": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [term({"operators": ["Equal"]})]}}}}}, "matchExpressions[0]: keys: absent")
	found({"required": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [term({"operators": ["Equal"]})]}}}}}, "operators: none")
	found({"required": {"affinities": {"podAffinities": {hard: [{"namespaces": []}]}}}}, "topologyKeys: absent")
}

test_null_is_found if {
	findings({"allowed": {"schedulerNames": [], "nodeSelectors": null}}) == ["spec.allowed.nodeSelectors: null counts as absent"]
}

test_policy_that_allows_no_scheduler_is_found if {
	report := validation.report with input as {"object": {"spec": {"allowed": {"tolerations": []}}}}
	report.findings == ["no scheduler is allowed: a pod needs a second policy that allows one"]
}
