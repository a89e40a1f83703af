package kube_sync.scheduling.validation_test

import data.kube_sync.scheduling.policies
import data.kube_sync.scheduling.validation

hard := "requiredDuringSchedulingIgnoredDuringExecution"

soft := "preferredDuringSchedulingIgnoredDuringExecution"

problems(spec) := report.problems if {
	report := validation.report with input as {"object": {"metadata": {"name": "p"}, "spec": spec}}
}

# Everything that may be said, in the spellings of the design proposal.
complete := {
	"required": {
		"SchedulerNames": ["a"],
		"priorityClassNames": ["b"],
		"nodeSelectors": {"c": [], "d": ["e"]},
		"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": [{"keys": ["f"], "operators": [], "values": ["g"]}]}]}, soft: {}}},
	},
	"allowed": {
		"schedulerNames": [],
		"priorityClasseNames": [],
		"nodeSelectors": {},
		"nodeNames": ["node-1"],
		"tolerations": [{"keys": [], "operators": ["Exists"], "values": null, "effects": []}, {}],
		"affinities": {
			"podAffinities": {},
			"podAntiAffinities": {
				hard: [{"topologyKeys": ["h"], "namespaces": [], "matchExpressions": [{"keys": ["i"], "operators": ["In"], "values": []}]}],
				soft: {},
			},
		},
	},
	"default": {
		"SchedulerName": "a",
		"priorityClassName": "b",
		"nodeSelector": {"c": ""},
		"tolerations": [
			{"key": "j", "operator": "Equal", "values": ["k", "l"], "effect": "NoSchedule"},
			{"key": "m", "value": "n", "effect": "NoExecute", "tolerationSeconds": 5},
			{"operator": "Exists"},
		],
		"affinity": {
			"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [{"keys": ["f"], "operators": ["In"], "values": ["g"]}, {"key": "o", "operator": "Exists"}]}]}},
			"podAntiAffinity": {soft: [{"weight": 1, "podAffinityTerm": {"topologyKey": "h", "labelSelector": {"matchLabels": {"p": "q"}}}}]},
		},
	},
}

test_documented_spellings_are_accepted if {
	problems(complete) == []
	problems({"allowedAffinities": {"nodeAffinities": {}}}) == []
	problems({"allowed": {"affinities": {}}, "allowedAffinities": null}) == []
}

test_policy_that_says_nothing_is_accepted if {
	every spec in [null, {}, {"allowed": null}, {"allowed": {"schedulerNames": null}}] {
		problems(spec) == []
	}
	validation.report.problems == [] with input as {"object": {}}
}

test_every_other_field_is_refused_by_its_path if {
	every text, spec in {
		"spec.alowed: unknown field": {"alowed": {}},
		"spec.required.tolerations: unknown field": {"required": {"tolerations": []}},
		"spec.required.schedulerName: unknown field": {"required": {"schedulerName": []}},
		"spec.allowed.nodeSelector: unknown field": {"allowed": {"nodeSelector": {}}},
		"spec.required.nodeNames: unknown field": {"required": {"nodeNames": ["a"]}},
		"spec.allowed.affinities.nodeAffinity: unknown field": {"allowed": {"affinities": {"nodeAffinity": {}}}},
		"spec.allowed.tolerations[0].key: unknown field": {"allowed": {"tolerations": [{"key": []}]}},
		"spec.default.schedulerNames: unknown field": {"default": {"schedulerNames": []}},
		"spec.default.affinity.nodeAffinities: unknown field": {"default": {"affinity": {"nodeAffinities": {}}}},
	} {
		text in problems(spec)
	}
	validation.report.problems == ["sepc: unknown field"] with input as {"object": {"sepc": 5, "status": {}}}
}

test_podantiaffinities_inside_a_half_are_refused if {
	half := {"nodeSelectorTerms": [{"matchExpressions": [{"keys": []}]}], "podAntiAffinities": {}}
	problems({"allowed": {"affinities": {"nodeAffinities": {hard: half}}}}) == [sprintf("spec.allowed.affinities.nodeAffinities.%s.podAntiAffinities: unknown field", [hard])]
}

test_wrong_types_are_refused if {
	every text, spec in {
		"spec: must be object, not array": [],
		"spec.allowed: must be object, not string": {"allowed": "all"},
		"spec.allowed.schedulerNames: must be array, not string": {"allowed": {"schedulerNames": "all"}},
		"spec.allowed.schedulerNames[0]: must be string, not number": {"allowed": {"schedulerNames": [1]}},
		"spec.allowed.schedulerNames[1]: must not be empty": {"allowed": {"schedulerNames": ["a", ""]}},
		"spec.required.nodeSelectors: must be object, not array": {"required": {"nodeSelectors": []}},
		"spec.required.nodeSelectors[a]: must be array, not null": {"required": {"nodeSelectors": {"a": null}}},
		"spec.required.nodeSelectors[a][0]: must be string, not boolean": {"required": {"nodeSelectors": {"a": [true]}}},
		"spec.allowed.tolerations: must be array, not object": {"allowed": {"tolerations": {}}},
		"spec.allowed.tolerations[0]: must be object, not array": {"allowed": {"tolerations": [[]]}},
		"spec.allowed.tolerations[0].keys: must be array, not string": {"allowed": {"tolerations": [{"keys": "a"}]}},
		"spec.default.nodeSelector: must be object, not array": {"default": {"nodeSelector": []}},
		"spec.default.nodeSelector[a]: must be string, not array": {"default": {"nodeSelector": {"a": []}}},
		"spec.allowed.affinities.podAffinities: must be object, not array": {"allowed": {"affinities": {"podAffinities": []}}},
	} {
		text in problems(spec)
	}
	validation.report.problems == ["the policy must be an object"] with input as {"object": "p"}
	validation.report.problems == ["the policy cannot be read"] with input as {}
}

test_lists_that_the_proposal_calls_invalid_are_refused_when_empty if {
	every path in [
		["required", "schedulerNames"],
		["required", "SchedulerNames"],
		["required", "priorityClasseNames"],
		["required", "priorityClassNames"],
		["default", "tolerations"],
		["default", "schedulerName"],
	] {
		empty := {true: [], false: ""}[path[1] != "schedulerName"]
		sprintf("spec.%s.%s: must not be empty", path) in validation.problems({"spec": {path[0]: {path[1]: empty}}})
	}
}

test_empty_list_of_required_schedulers_counts_as_absent if {
	every field in ["schedulerNames", "SchedulerNames"] {
		policy := {"spec": {"required": {field: []}, "allowed": {"schedulerNames": ["a"]}}}
		count(validation.problems(policy)) == 1
		report := validation.report with input as {"object": policy}
		report.problems == []
		sprintf("spec.required.%s: must not be empty; in decisions it counts as absent", [field]) in report.findings
		specs := policies.specs with data.kubernetes.schedulingpolicies as {"p": policy} with data.kube_sync.scheduling.use.names as {"p"}
		specs == {"p": {"required": {}, "allowed": {"schedulerNames": ["a"]}}}
	}
}

test_affinity_patterns_without_meaning_are_refused if {
	every half in [{"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{"matchExpressions": []}]}] {
		some problem in problems({"allowed": {"affinities": {"nodeAffinities": {hard: half}}}})
		endswith(problem, "must not be empty")
	}
}

test_field_given_in_two_spellings_is_refused if {
	problems({"allowed": {"schedulerNames": ["a"], "SchedulerNames": ["b"]}}) == ["spec.allowed.SchedulerNames: also given as spec.allowed.schedulerNames"]
	problems({"allowed": {"affinities": {}}, "allowedAffinities": {}}) == ["spec.allowedAffinities: also given as spec.allowed.affinities"]
	problems({"allowed": {"schedulerNames": ["a"], "SchedulerNames": null}}) == []
}

test_default_toleration_that_kubernetes_refuses_is_refused if {
	every text, toleration in {
		".operator: must be Equal, Exists, Gt or Lt": {"key": "a", "operator": "In"},
		".effect: must be NoSchedule, PreferNoSchedule or NoExecute": {"key": "a", "effect": "Never"},
		".values: also given as value": {"key": "a", "value": "b", "values": ["c"]},
		": Exists has no value": {"key": "a", "operator": "Exists", "values": ["c"]},
		".key: may be absent only where the operator is Exists": {"value": "b"},
		".tolerationSeconds: needs the effect NoExecute": {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
	} {
		problems({"default": {"tolerations": [toleration]}}) == [concat("", ["spec.default.tolerations[0]", text])]
	}
}

test_expression_of_a_default_needs_one_key_and_one_operator if {
	every expression in [{"operator": "Exists"}, {"keys": ["a", "b"], "operator": "Exists"}, {"key": "a", "keys": ["a"], "operator": "Exists"}] {
		some problem in problems({"default": {"affinity": {"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}})
		endswith(problem, "nodeSelectorTerms[0].matchExpressions[0].key: exactly one is needed")
	}
}

terms := {"nodeSelectorTerms": [{"matchExpressions": [{"keys": ["a"], "operators": [], "values": ["b"]}]}]}

test_plain_policy_has_no_problem_and_is_what_it_says if {
	every spec in [
		{},
		{"required": {}, "allowed": {}, "default": {}},
		{"required": {"schedulerNames": ["a"], "priorityClasseNames": ["b"], "nodeSelectors": {"c": [], "d": ["e", ""]}}},
		{"allowed": {"schedulerNames": [], "priorityClasseNames": ["a"], "nodeSelectors": {}, "tolerations": [], "affinities": {}}},
		{"allowed": {"tolerations": [{}, {"keys": ["a"], "effects": []}]}},
		{"required": {"affinities": {"nodeAffinities": {hard: terms}}}},
		{"default": {"schedulerName": "a", "priorityClasseName": "b", "nodeSelector": {"c": ""}}},
	] {
		policy := {"metadata": {"name": "p"}, "spec": spec}
		validation.is_plain(policy)
		validation.problems(policy) == set()
		policies.canonical(policy) == spec
	}
}

test_nothing_that_is_refused_or_translated_is_plain if {
	every spec in [
		null,
		{"alowed": {}},
		{"allowed": null},
		{"allowed": {"SchedulerNames": ["a"]}},
		{"required": {"schedulerNames": []}},
		{"required": {"schedulerNames": [""]}},
		{"required": {"schedulerNames": "a"}},
		{"required": {"tolerations": []}},
		{"required": {"nodeSelectors": {"a": "b"}}},
		{"allowed": {"tolerations": [{"key": "a"}]}},
		{"allowed": {"tolerations": [{"keys": [1]}]}},
		{"allowed": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": []}}}}},
		{"allowed": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [{"matchExpressions": []}]}}}}},
		{"allowed": {"affinities": {"nodeAffinities": {hard: {"nodeSelectorTerms": [{}]}}}}},
		{"default": {"nodeSelectors": {}}},
		{"default": {"nodeSelector": {"a": 1}}},
		{"default": {"schedulerName": ""}},
		{"default": {"affinities": {}}},
		{"allowed": {"nodeSelector": {}}},
	] {
		not validation.is_plain({"spec": spec})
	}
	not validation.is_plain({"spec": {}, "sepc": {}})
}
