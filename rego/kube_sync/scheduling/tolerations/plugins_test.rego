package kube_sync.scheduling.plugins_test

import data.kube_sync.scheduling.world_test as world

of_gpu := {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

requesting(field, resources) := {"tolerations": [of_gpu], field: [{"name": "a", "resources": resources}]}

# ExtendedResourceToleration adds it to no pod that requests none.
test_toleration_of_an_extended_resource_needs_no_permission_where_it_is_requested if {
	world.admits({}, requesting("containers", {"requests": {"nvidia.com/gpu": "1"}}))
	world.admits({}, requesting("containers", {"limits": {"nvidia.com/gpu": "1"}}))
	world.admits({}, requesting("initContainers", {"requests": {"nvidia.com/gpu": "1"}}))
	world.denies({}, requesting("containers", {"requests": {"cpu": "1"}}), "spec.tolerations[0]")
	world.denies({}, {"tolerations": [of_gpu]}, "spec.tolerations[0]")
	world.denies({}, object.union(requesting("containers", {"requests": {"nvidia.com/gpu": "1"}}), {"tolerations": [object.union(of_gpu, {"effect": "NoExecute"})]}), "spec.tolerations[0]")
}

test_toleration_of_memory_pressure_needs_no_permission if {
	pressed := {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
	world.admits({}, {"tolerations": [pressed]})
	spot := {"key": "spot", "operator": "Exists"}
	made := world.patched({"default": {"tolerations": [spot]}}, {"tolerations": [pressed]})
	made.tolerations == [pressed, spot]
}

test_tolerations_that_plugins_add_are_what_is_configured if {
	specs := {"p": {"allowed": {"schedulerNames": []}}}
	fpga := {"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"}
	request := world.request("CREATE", {"tolerations": [fpga], "containers": [{"resources": {"requests": {"example.com/fpga": "1"}}}]})
	config := {"plugin_tolerations": [object.union(fpga, {"value": "", "tolerationSeconds": null}), {"operator": "Exists", "effect": "PreferNoSchedule"}]}
	not world.decided(specs, request, {}).allowed
	world.decided(specs, request, config).allowed
	world.decided(specs, world.request("CREATE", {"tolerations": [{"operator": "Exists", "effect": "PreferNoSchedule"}]}), config).allowed
	pressed := world.request("CREATE", {"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]})
	not world.decided(specs, pressed, config).allowed
	not world.decided(specs, pressed, {"plugin_tolerations": []}).allowed
}
