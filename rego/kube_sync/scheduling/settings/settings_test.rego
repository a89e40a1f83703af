package kube_sync.scheduling.settings_test

import data.kube_sync.scheduling.settings
import data.kube_sync.scheduling.world_test as world

test_absent_settings_have_defaults if {
	settings.problems == set()
	settings.merge_option == 1
	settings.user_may_use == false
	settings.default_scheduler_is_unspecified == false
	settings.trust_daemonset_controller == true
	settings.injected_toleration_seconds == 300
	settings.global_default_priority_class == ""
	{toleration.key | some toleration in settings.plugin_tolerations} == {"nvidia.com/gpu", "node.kubernetes.io/memory-pressure"}
	settings.group == "policy.kube-sync.io"
}

good := {
	"merge_option": 4,
	"user_may_use": true,
	"default_scheduler_is_unspecified": true,
	"strict_affinity": true,
	"trust_daemonset_controller": false,
	"injected_toleration_seconds": 60,
	"global_default_priority_class": "usual",
	"plugin_tolerations": [{"key": "example.com/fpga", "operator": "Exists"}],
	"group": "example.com",
}

test_settings_of_the_right_shape_are_no_problem if {
	every option in [1, 2, 3, 4] {
		settings.problems == set() with data.kube_sync.config.scheduling as object.union(good, {"merge_option": option})
	}
	settings.group == "example.com" with data.kube_sync.config.scheduling as good
}

test_setting_of_the_wrong_shape_denies_every_pod if {
	every name, value in {
		"merge_option": "1",
		"user_may_use": 1,
		"default_scheduler_is_unspecified": "no",
		"strict_affinity": null,
		"trust_daemonset_controller": "",
		"injected_toleration_seconds": "300",
		"global_default_priority_class": 5,
		"plugin_tolerations": ["example.com/fpga"],
		"group": "",
	} {
		config := object.union(good, {name: value})
		decision := world.decided({"p": {"allowed": {"schedulerNames": []}}}, world.request("CREATE", {}), config)
		decision.allowed == false
		some reason in decision.reasons
		startswith(reason, concat(".", ["data.kube_sync.config.scheduling", name]))
	}
}

test_list_of_tolerations_has_to_be_one if {
	settings.problems != set() with data.kube_sync.config.scheduling as {"plugin_tolerations": {}}
}

test_settings_that_are_no_object_deny_every_pod if {
	every config in [null, [], "merge_option: 1", 1] {
		decision := world.decided({"p": {"allowed": {"schedulerNames": []}}}, world.request("CREATE", {}), config)
		decision.allowed == false
		"data.kube_sync.config.scheduling: must be an object" in decision.reasons
	}
}
