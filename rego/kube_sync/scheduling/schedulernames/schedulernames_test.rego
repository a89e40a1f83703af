package kube_sync.scheduling.schedulernames_test

import data.kube_sync.scheduling.world_test as world

names := ["green", "blue"]

test_listed_required_and_default_names_are_allowed if {
	every spec in [
		{"allowed": {"schedulerNames": names}},
		{"required": {"schedulerNames": names}},
		{"default": {"schedulerName": "green"}},
	] {
		world.decision({"p": spec}, {"schedulerName": "green"}).allowed
		not world.decision({"p": spec}, {"schedulerName": "red"}).allowed
	}
}

test_absent_list_allows_no_scheduler_and_an_empty_one_all if {
	every spec in [{}, {"allowed": {}}, {"allowed": {"schedulerNames": null}}, null] {
		not world.decision({"p": spec}, {"schedulerName": "default-scheduler"}).allowed
		not world.decision({"p": spec}, {}).allowed
	}
	world.decision({"p": {"allowed": {"schedulerNames": []}}}, {"schedulerName": "any"}).allowed
}

test_pod_without_a_name_has_the_default_scheduler if {
	every pod in [{}, {"schedulerName": ""}, {"schedulerName": null}, {"schedulerName": "default-scheduler"}] {
		world.decision({"p": {"allowed": {"schedulerNames": ["default-scheduler"]}}}, pod).allowed
		not world.decision({"p": {"allowed": {"schedulerNames": names}}}, pod).allowed
	}
}

test_allowed_name_that_is_not_required_is_denied if {
	world.denies(
		{"allowed": {"schedulerNames": ["red"]}, "required": {"schedulerNames": names}},
		{"schedulerName": "red"},
		`spec.schedulerName: "red" is none of the required ["green","blue"]`,
	)
}

test_denial_names_field_value_and_policies if {
	world.decision({"b": {}, "a": {}}, {"schedulerName": "red"}).reasons == [`spec.schedulerName: "red" is not allowed (policies considered: a, b)`]
}

# As the API server sends a pod that names none.
filled_in := {"schedulerName": "default-scheduler"}

made(specs, pod, config) := answer.patch if {
	answer := world.decided(specs, world.request("CREATE", pod), config)
	answer.allowed
}

put(name) := [{"op": "add", "path": "/spec/schedulerName", "value": name}]

test_default_takes_the_place_of_the_name_that_the_api_server_fills_in if {
	every spec in [
		{"default": {"schedulerName": "green"}},
		{"default": {"SchedulerName": "green"}},
		{"required": {"schedulerNames": names}, "default": {"schedulerName": "green"}},
		{"allowed": {"schedulerNames": names}, "default": {"schedulerName": "green"}},
		{"required": {"schedulerNames": names}, "allowed": {"schedulerNames": []}, "default": {"schedulerName": "green"}},
	] {
		made({"p": spec}, filled_in, {}) == put("green")
		made({"p": spec}, {}, {}) == put("green")
		made({"p": spec}, {"schedulerName": "green"}, {}) == []
	}
}

# Everybody may use `restricted`, which allows the default scheduler.
test_default_acts_beside_another_policy_that_allows_the_default_scheduler if {
	restricted := {"allowed": {"schedulerNames": ["default-scheduler"]}}
	made({"mine": {"default": {"schedulerName": "green"}}, "restricted": restricted}, filled_in, {}) == put("green")
	made({"mine": {"default": {"schedulerName": "green"}}, "a-restricted": restricted}, filled_in, {"merge_option": 3}) == put("green")
	made({"a-first": restricted, "mine": {"default": {"schedulerName": "green"}}}, filled_in, {"merge_option": 2}) == []
}

test_default_scheduler_is_kept_where_the_policy_with_the_default_allows_it if {
	every allowed in [["default-scheduler", "green"], []] {
		specs := {"p": {"allowed": {"schedulerNames": allowed}, "default": {"schedulerName": "green"}}}
		made(specs, filled_in, {}) == []
		made(specs, filled_in, {"default_scheduler_is_unspecified": true}) == put("green")
	}
	either := {"required": {"schedulerNames": ["default-scheduler", "green"]}, "default": {"schedulerName": "green"}}
	made({"p": either}, filled_in, {}) == []
	made({"p": either, "q": {}}, filled_in, {"merge_option": 1}) == []
}

# Kept, it would be denied.
test_default_acts_where_another_policy_requires_another_scheduler if {
	specs := {"p": {"allowed": {"schedulerNames": []}, "default": {"schedulerName": "green"}}, "q": {"required": {"schedulerNames": ["green"]}}}
	made(specs, filled_in, {}) == put("green")
}

test_without_a_default_the_default_scheduler_is_denied_where_it_is_not_allowed if {
	not world.decided({"p": {"required": {"schedulerNames": names}}}, world.request("CREATE", filled_in), {}).allowed
}
