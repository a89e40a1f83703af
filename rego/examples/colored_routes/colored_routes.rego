# Routes whose every path has a colour.
#
# Admission of HTTPRoutes by what ColorPolicies come to on the paths through them: a route that is
# there and would be changed is denied as long as a path to one of its rules has no colour named
# "brand", or one that is not allowed; the message names the policy that the colour is from.
#
# A route that is new has no paths yet: its own policies come with it or after it, so it is let in.
#
# METADATA
# title: Routes whose every path has a colour
package examples.colored_routes

_kind := "ColorPolicy.examples.kube-sync.io"

_allowed := {"green", "blue"}

# METADATA
# description: Whether the route may be written
# entrypoint: true
default allow := false

allow if count(errors) == 0

# METADATA
# description: What stands against it, in words, each with the policy that it is about
errors contains msg if {
	some path in _paths
	path.merged == null
	msg := sprintf("%s: no ColorPolicy applies on the path by %s", [_rule(path), _listener(path)])
}

errors contains msg if {
	some path in _paths
	merged := data.kubernetes.topology.merged[path.merged]
	not merged.spec.rules.brand
	policies := concat(", ", merged.policies)
	msg := sprintf("%s: %s say nothing of brand on the path by %s", [_rule(path), policies, _listener(path)])
}

errors contains msg if {
	some path in _paths
	merged := data.kubernetes.topology.merged[path.merged]
	color := merged.spec.rules.brand.color
	not color in _allowed
	msg := sprintf("%s: brand is %s, by %s", [_rule(path), color, merged.sources.brand])
}

# What applies on each path to each rule of the route that is asked about.
_paths contains path if {
	request := input.request
	name := sprintf("%s/%s", [request.namespace, request.name])
	route := sprintf("httproute.gateway.networking.k8s.io:%s", [name])
	some rule in data.kubernetes.topology.nodes[route].children
	some path in data.kubernetes.topology.targetables[rule][_kind]
}

_rule(path) := path.path[count(path.path) - 1]

_listener(path) := path.path[2]
