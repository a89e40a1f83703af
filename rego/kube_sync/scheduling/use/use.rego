# METADATA
# title: Use
# description: |
#   The policies that a pod may use, as Kubernetes evaluates RBAC: the verb `use` on the resource
#   `schedulingpolicies`, granted by a ClusterRoleBinding anywhere or by a RoleBinding in the pod's
#   namespace. Who counts is the service account that runs the pod; whoever sends it counts too only
#   where `user_may_use` is set.
package kube_sync.scheduling.use

import data.kube_sync.scheduling.pods
import data.kube_sync.scheduling.settings

# METADATA
# description: The names of the policies that exist and may be used
names := {name | some name, _ in data.kubernetes.schedulingpolicies} if {
	some rule in _rules
	object.get(rule, "resourceNames", []) in {[], null}
} else := {name |
	some rule in _rules
	some name in rule.resourceNames
	data.kubernetes.schedulingpolicies[name]
}

_rules contains rule if {
	some name in _cluster_roles
	some rule in data.kubernetes.clusterroles[name].rules
	_grants(rule)
}

_rules contains rule if {
	some name in _roles
	some rule in data.kubernetes.roles[pods.namespace][name].rules
	_grants(rule)
}

# Rules for nonResourceURLs name no resources, and grant nothing here.
_grants(rule) if {
	some verb in rule.verbs
	verb in {"use", "*"}
	some resource in rule.resources
	resource in {"schedulingpolicies", "*"}
	some group in rule.apiGroups
	group in {settings.group, "*"}
}

# A role that is not there (any more) has no rules, so a binding to it grants nothing.
_cluster_roles contains binding.roleRef.name if {
	bindings := data.kubernetes.clusterrolebindings
	names := _named
	some name
	names[bindings[name].subjects[_].name]
	binding := bindings[name]
	some subject in binding.subjects
	subject.name in _people[subject.kind]
	_is_bound(subject, "")
	binding.roleRef.kind == "ClusterRole"
}

_cluster_roles contains name if some ["ClusterRole", name] in _namespaced

_roles contains name if some ["Role", name] in _namespaced

_namespaced contains [binding.roleRef.kind, binding.roleRef.name] if {
	bindings := data.kubernetes.rolebindings[pods.namespace]
	names := _named
	some name
	names[bindings[name].subjects[_].name]
	binding := bindings[name]
	some subject in binding.subjects
	subject.name in _people[subject.kind]
	_is_bound(subject, pods.namespace)
}

_is_bound(subject, _) if {
	subject.kind != "ServiceAccount"
	object.get(subject, "apiGroup", "") in {"", "rbac.authorization.k8s.io"}
}

# Without a namespace it is the binding's; a ClusterRoleBinding has none to lend.
_is_bound(subject, namespace) if {
	subject.kind == "ServiceAccount"
	object.get(subject, "apiGroup", "") == ""
	[_namespace(subject, namespace), subject.name] in _accounts
}

_namespace(subject, _) := subject.namespace if not object.get(subject, "namespace", "") in {"", null}

_namespace(subject, namespace) := namespace if object.get(subject, "namespace", "") in {"", null}

_named := union({names | some names in _people})

# By the kind of a subject, the names that it may have.
_people := {
	"User": _users,
	"Group": _groups,
	"ServiceAccount": {name | some [_, name] in _accounts},
}

_users contains _user(account) if some account in _accounts

_users contains input.userInfo.username if settings.user_may_use

_groups := {"system:authenticated", "system:serviceaccounts", _group(pods.namespace)} | _user_groups

default _user_groups := set()

_user_groups := {group | some group in input.userInfo.groups} if settings.user_may_use

_accounts contains [pods.namespace, pods.account]

_accounts contains [namespace, name] if {
	settings.user_may_use
	["system", "serviceaccount", namespace, name] = split(input.userInfo.username, ":")
}

_user([namespace, name]) := concat(":", ["system:serviceaccount", namespace, name])

_group(namespace) := concat(":", ["system:serviceaccounts", namespace])
