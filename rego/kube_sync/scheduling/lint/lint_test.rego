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
	findings({"required": {"affinities": {"nodeAffinities": terms}}}) == [] # each term has to have all of it
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
	findings({"required": {"schedulerNames": ["default-scheduler"]}, "default": {"schedulerName": "default-scheduler"}}) == []
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

test_what_becomes_of_a_default_scheduler_is_told if {
	keeps := "spec.default.schedulerName: no pod gets it"
	acts := "spec.default.schedulerName: a pod that asks for default-scheduler gets \"green\" as well"
	spec := {"allowed": {"schedulerNames": ["default-scheduler"]}, "default": {"schedulerName": "green"}}
	found(spec, keeps)
	not found(spec, acts)
	found(spec, acts) with data.kube_sync.config.scheduling as {"default_scheduler_is_unspecified": true}
	not found(spec, keeps) with data.kube_sync.config.scheduling as {"default_scheduler_is_unspecified": true}
	found({"required": {"schedulerNames": ["green"]}, "default": {"schedulerName": "green"}}, acts)
}

test_global_default_priority_class_is_named if {
	classes := {"common": {"globalDefault": true}, "high": {}}
	text := "PriorityClass common is the global default"
	found({}, text) with data.kubernetes.priorityclasses as classes
	found({}, text) with data.kube_sync.config.scheduling as {"global_default_priority_class": "common"}
	every names in [[], ["common"]] {
		findings({"allowed": {"schedulerNames": [], "priorityClasseNames": names}}) == [] with data.kubernetes.priorityclasses as classes
	}
	findings({"required": {"priorityClasseNames": ["common"]}, "default": {"priorityClasseName": "common"}}) == [] with data.kubernetes.priorityclasses as classes
}
