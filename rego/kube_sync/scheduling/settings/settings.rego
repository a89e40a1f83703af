# METADATA
# title: Settings
# description: |
#   What `data.kube_sync.config.scheduling` sets, with its defaults. A setting of the wrong shape is
#   a problem, and no pod is admitted under it: nobody knows what it was to restrict.
package kube_sync.scheduling.settings

# METADATA
# description: Each setting that is wrong, by its path
problems contains message if {
	not is_object(_given)
	message := "data.kube_sync.config.scheduling: must be an object"
}

problems contains message if {
	some name, value in _given
	wanted := _wanted[name]
	not _suits(wanted, value)
	message := sprintf("data.kube_sync.config.scheduling.%s: must be %s, not %s", [name, wanted, json.marshal(value)])
}

# METADATA
# description: How several policies become one, 1 to 3 as in the proposal, 4 an intersection that fails closed
merge_option := object.get(_given, "merge_option", 1)

# METADATA
# description: Whether the rights of whoever sends the pod count beside those of its service account
user_may_use := object.get(_given, "user_may_use", false)

# METADATA
# description: |
#   Whether `default-scheduler`, which the API server fills in, counts as no scheduler named even
#   where the policy with the default allows it
default_scheduler_is_unspecified := object.get(_given, "default_scheduler_is_unspecified", false)

# METADATA
# description: Whether what the DaemonSet controller adds to its own pods needs no permission
trust_daemonset_controller := object.get(_given, "trust_daemonset_controller", true)

# METADATA
# description: The seconds in the tolerations that the API server adds to every pod (--default-not-ready-toleration-seconds)
injected_toleration_seconds := object.get(_given, "injected_toleration_seconds", 300)

# METADATA
# description: The PriorityClass that the API server fills in where a pod names none, "" if there is none
global_default_priority_class := object.get(_given, "global_default_priority_class", "")

# METADATA
# description: |
#   Tolerations that plugins of the API server add to pods. The one for an extended resource counts
#   only in a pod that requests the resource, since the plugin adds it to no other.
plugin_tolerations := object.get(_given, "plugin_tolerations", [
	# ExtendedResourceToleration
	{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
	# PodTolerationRestriction
	{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
])

# METADATA
# description: The API group of SchedulingPolicy, in roles too
group := value if {
	value := _given.group
	_suits("a name", value)
} else := "policy.kube-sync.io"

default _given := {}

_given := data.kube_sync.config.scheduling

_wanted := {
	"merge_option": "1, 2, 3 or 4",
	"user_may_use": "true or false",
	"default_scheduler_is_unspecified": "true or false",
	"strict_affinity": "true or false", # has no effect any more: every term is judged
	"trust_daemonset_controller": "true or false",
	"injected_toleration_seconds": "a number",
	"global_default_priority_class": "a text",
	"plugin_tolerations": "a list of objects",
	"group": "a name",
}

_suits("1, 2, 3 or 4", value) if value in {1, 2, 3, 4}

_suits("true or false", value) if is_boolean(value)

_suits("a number", value) if is_number(value)

_suits("a text", value) if is_string(value)

_suits("a list of objects", value) if {
	is_array(value)
	every item in value {
		is_object(item)
	}
}

_suits("a name", value) if {
	is_string(value)
	value != ""
}
