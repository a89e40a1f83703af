package spread_over_regions_test

import data.placement.packs.spread_over_regions as pack

said := {"regions": 1, "namespaces": {"payments": 2}}

clusters := {"fleet": {
	"paris": {"metadata": {"labels": {"topology.kubernetes.io/region": "france"}}},
	"attic": {"metadata": {}},
}}

minimum(resource, parameters) := found if {
	found := pack.minimum_regions with input as resource
		with data["kube-federation-scheduling-policy"] as {"spread-over-regions": parameters}
}

asks(namespace, text) := {"metadata": {
	"namespace": namespace,
	"annotations": {"policy.example.com/minimum-regions": text},
}}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"spread-over-regions": parameters}
}

test_regions_are_those_that_clusters_say if {
	pack.regions == {"paris": {"france"}} with data.kubernetes.clusters as clusters
}

test_the_highest_minimum_counts if {
	minimum({"metadata": {"namespace": "shop"}}, said) == 1
	minimum({"metadata": {"namespace": "payments"}}, said) == 2
	minimum(asks("payments", "1"), said) == 2
	minimum(asks("payments", "3"), said) == 3
	not minimum({}, {})
}

test_minimum_that_is_no_number_is_a_problem if {
	problems := pack.problems with input as asks("shop", "two")
	problems == {`annotation policy.example.com/minimum-regions: "two" is no whole number`}
}

test_parameters_are_checked if {
	wrong(said) == set()
	wrong({"region": 1}) == {"region is no parameter; there are namespaces, regions"}
	wrong({"regions": "1"}) == {"regions must be of type number, and is of type string"}
	wrong({"regions": 0}) == set()
	every number in [1.5, -1] {
		wrong({"regions": number}) == {sprintf("regions must be a whole number, not %v", [number])}
	}
	every number in ["2", 1.5, -1, null] {
		wrong({"namespaces": {"a": number}}) == {"namespaces.a must be a whole number"}
	}
}

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
