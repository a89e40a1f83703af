package examples.colored_routes_test

import data.examples.colored_routes

request := {"request": {"kind": {"kind": "HTTPRoute"}, "namespace": "shop", "name": "cart"}}

policy(name) := sprintf("colorpolicy.examples.kube-sync.io:shop/%s", [name])

gateway := "gateway.gateway.networking.k8s.io:shop/web"

route := "httproute.gateway.networking.k8s.io:shop/cart"

path(listener) := [
	"gatewayclass.gateway.networking.k8s.io:public",
	gateway,
	sprintf("%s#%s", [gateway, listener]),
	route,
	sprintf("%s#rule-1", [route]),
]

applied(listener, merged) := {"path": path(listener), "effective": merged, "merged": merged}

# What the replicator writes of one route with one rule.
topology(paths, merged) := {
	"nodes": {route: {"children": [sprintf("%s#rule-1", [route])]}},
	"targetables": {sprintf("%s#rule-1", [route]): {"ColorPolicy.examples.kube-sync.io": paths}},
	"merged": merged,
}

branded(color) := {
	"spec": {"rules": {"brand": {"color": color}}},
	"sources": {"brand": policy("gateway")},
	"policies": [policy("gateway")],
}

test_a_colour_on_every_path_is_let_in if {
	found := topology([applied("a", "m"), applied("b", "m")], {"m": branded("green")})
	colored_routes.allow with input as request with data.kubernetes.topology as found
}

test_a_path_without_a_policy_is_named if {
	found := topology([applied("a", "m"), applied("b", null)], {"m": branded("green")})
	expected := sprintf("%s#rule-1: no ColorPolicy applies on the path by %s#b", [route, gateway])
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
	not colored_routes.allow with input as request with data.kubernetes.topology as found
}

test_policies_that_say_nothing_of_it_are_named if {
	silent := {"spec": {"rules": {"sky": {"color": "blue"}}}, "policies": [policy("sky")]}
	found := topology([applied("a", "m")], {"m": silent})
	expected := sprintf(
		"%s#rule-1: %s say nothing of brand on the path by %s#a",
		[route, policy("sky"), gateway],
	)
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
}

test_the_policy_that_a_wrong_colour_is_from_is_named if {
	found := topology([applied("a", "m")], {"m": branded("pink")})
	expected := sprintf("%s#rule-1: brand is pink, by %s", [route, policy("gateway")])
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
}

test_a_route_that_is_not_there_yet_is_let_in if {
	colored_routes.allow with input as request with data.kubernetes.topology as {}
}
