package examples.colored_routes_test

import data.examples.colored_routes

# As the webhook asks in the dialect `review`.
request := {
	"operation": "UPDATE",
	"kind": {"group": "gateway.networking.k8s.io", "version": "v1", "kind": "HTTPRoute"},
	"namespace": "shop",
	"name": "cart",
}

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
	count(colored_routes.errors) == 0 with input as request with data.kubernetes.topology as found
}

test_a_path_without_a_policy_is_named if {
	found := topology([applied("a", "m"), applied("b", null)], {"m": branded("green")})
	expected := sprintf("%s#rule-1: no ColorPolicy applies on the path by %s#b", [route, gateway])
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
}

test_the_listener_is_named_where_the_class_is_not_there if {
	whole := applied("a", null)
	found := topology([object.union(whole, {"path": array.slice(whole.path, 1, 5)})], {})
	expected := sprintf("%s#rule-1: no ColorPolicy applies on the path by %s#a", [route, gateway])
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
}

test_policies_that_say_nothing_of_it_are_named if {
	expected := sprintf(
		"%s#rule-1: %s say nothing of brand on the path by %s#a",
		[route, policy("sky"), gateway],
	)
	every said in [{"sky": {"color": "blue"}}, {"brand": {}}, {"brand": {"shade": 1}}] {
		silent := {"spec": {"rules": said}, "policies": [policy("sky")], "sources": {}}
		found := topology([applied("a", "m")], {"m": silent})
		{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
	}
}

test_the_policy_that_a_wrong_colour_is_from_is_named if {
	found := topology([applied("a", "m")], {"m": branded("pink")})
	expected := sprintf("%s#rule-1: brand is pink, by %s", [route, policy("gateway")])
	{expected} == colored_routes.errors with input as request with data.kubernetes.topology as found
}

test_a_route_that_is_not_there_yet_is_let_in if {
	other := {"nodes": {gateway: {"children": []}}}
	new := object.union(request, {"operation": "CREATE"})
	count(colored_routes.errors) == 0 with input as new with data.kubernetes.topology as other
}

test_without_a_topology_routes_are_denied if {
	count(colored_routes.errors) == 1 with input as request
}

test_what_is_no_write_of_an_http_route_is_not_judged if {
	wrong := topology([applied("a", "m")], {"m": branded("pink")})
	others := [
		{"operation": "DELETE"},
		{"operation": "CONNECT"},
		{"subResource": "status"},
		{"kind": {"kind": "GRPCRoute"}},
		{"kind": {"group": "example.com"}},
	]
	every other in others {
		asked := object.union(request, other)
		count(colored_routes.errors) == 0 with input as asked with data.kubernetes.topology as wrong
	}
	every other in others {
		count(colored_routes.errors) == 0 with input as object.union(request, other)
	}
}
