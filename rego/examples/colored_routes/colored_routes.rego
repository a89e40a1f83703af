# Routes whose every path has a colour.
#
# Admission of HTTPRoutes by what ColorPolicies come to on the paths through them: a route that is
# there and would be changed is denied as long as a path to one of its rules has no colour named
# "brand", or one that is not allowed; the message names the policy that the colour is from.
#
# A route that is new has no paths yet: its own policies come with it or after it, so it is let in.
# Without a topology nobody can tell which is which: then all are denied.
#
# The input is the request of an AdmissionReview, as the webhook asks with `dialect: review`. Statuses
# and deletions are not judged, nor is anything else than HTTPRoutes.
#
# METADATA
# title: Routes whose every path has a colour
package examples.colored_routes

_policies := "ColorPolicy.examples.kube-sync.io"

_allowed := {"green", "blue"}

# METADATA
# description: What stands against the route, in words, each with the policy that it is about
# entrypoint: true
errors contains msg if {
	_is_judged
	not data.kubernetes.topology.nodes
	msg := "data.kubernetes.topology: not there, so nobody can tell which colours the route has"
}

errors contains msg if {
	some path in _paths
	path.merged == null
	msg := sprintf("%s: no ColorPolicy applies on the path by %s", [_rule(path), _listener(path)])
}

errors contains msg if {
	some path in _paths
	merged := data.kubernetes.topology.merged[path.merged]
	not merged.spec.rules.brand.color
	policies := concat(", ", merged.policies)
	msg := sprintf("%s: %s say nothing of brand on the path by %s", [_rule(path), policies, _listener(path)])
}

errors contains msg if {
	some path in _paths
	merged := data.kubernetes.topology.merged[path.merged]
	color := merged.spec.rules.brand.color
	not color in _allowed
	msg := sprintf("%s: brand is %v, by %s", [_rule(path), color, merged.sources.brand])
}

_is_judged if {
	input.kind.group == "gateway.networking.k8s.io"
	input.kind.kind == "HTTPRoute"
	input.operation in {"CREATE", "UPDATE"}
	object.get(input, "subResource", "") == ""
}

# What applies on each path to each rule of the route that is asked about.
_paths contains path if {
	_is_judged
	route := sprintf("httproute.gateway.networking.k8s.io:%s/%s", [input.namespace, input.name])
	some rule in data.kubernetes.topology.nodes[route].children
	some path in data.kubernetes.topology.targetables[rule][_policies]
}

_rule(path) := path.path[count(path.path) - 1]

# The first section on the path: a Gateway whose class is not there has no class above it.
_listener(path) := [name | some name in path.path; contains(name, "#")][0]
