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
