# METADATA
# title: What stands in a cluster
# description: |
#   DaemonSets that the policies deny although they are there: written before the policy, or before
#   somebody lost the right to use another one. Nothing tells their authors until a pod is missing.
package kube_sync.scheduling.standing

import data.kube_sync.scheduling
import data.kube_sync.scheduling.daemonsets

# METADATA
# description: |
#   Findings about policies by their names, in a cluster where nobody is asked about what is in
#   `input.exempt_namespaces`. A DaemonSet that may use no policy is named by all of them.
findings := {name: _cut(lines) |
	some name, _ in data.kubernetes.schedulingpolicies
	lines := [line |
		some [considered, line] in _denied
		name in considered
	]
	lines != []
}

_denied := sort([[considered, line] |
	some namespace, found in data.kubernetes.daemonsets
	not namespace in input.exempt_namespaces
	some name, daemonset in found
	answer := scheduling.judged with input as daemonsets.request(daemonset, namespace, {})
	not answer.allowed
	considered := _or_all(answer.policies)
	line := sprintf("DaemonSet %s/%s is denied by its template and gets no new pod until that is changed: %s", [
		namespace,
		name,
		concat("; ", answer.reasons),
	])
])

_or_all([]) := object.keys(data.kubernetes.schedulingpolicies)

_or_all(names) := names if names != []

_most := 20

_cut(lines) := lines if {
	count(lines) <= _most
} else := array.concat(
	array.slice(lines, 0, _most),
	[sprintf("… and %d more DaemonSets", [count(lines) - _most])],
)
