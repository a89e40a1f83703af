package data_residency_test

import data.placement.packs.data_residency as pack

said := {"jurisdictions": {"eu": ["europe-"], "us": ["us-", "northamerica-"]}, "namespaces": {"payments": "eu"}}

clusters := {"fleet": {
	"paris": {"metadata": {"labels": {"topology.kubernetes.io/region": "europe-west9"}}},
	"oregon": {"metadata": {"labels": {"topology.kubernetes.io/region": "us-west1"}}},
	"attic": {"metadata": {}},
}}

opposed(resource) := {name | some name, _ in objections} if {
	objections := pack.objections with input as resource
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"data-residency": said}
}

named(jurisdiction) := {"metadata": {
	"namespace": "shop",
	"annotations": {"policy.example.com/jurisdiction": jurisdiction},
}}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"data-residency": parameters}
}

test_clusters_outside_are_opposed if {
	opposed(named("eu")) == {"oregon", "attic"}
	opposed(named("us")) == {"paris", "attic"}
	opposed(named("mars")) == {"paris", "oregon", "attic"}
	opposed({"metadata": {"namespace": "shop"}}) == set()
}

test_the_jurisdiction_of_the_namespace_holds_too if {
	opposed({"metadata": {"namespace": "payments"}}) == {"oregon", "attic"}
	opposed({"metadata": {
		"namespace": "payments",
		"annotations": {"policy.example.com/jurisdiction": "us"},
	}}) == {"paris", "oregon", "attic"}
}

test_unknown_jurisdiction_is_a_problem if {
	problems := pack.problems with input as named("mars")
		with data["kube-federation-scheduling-policy"] as {"data-residency": said}
	problems == {`annotation policy.example.com/jurisdiction: there is no "mars"`}
}

test_parameters_are_checked if {
	wrong(said) == set()
	wrong({"jurisdicton": {}}) == {"jurisdicton is no parameter; there are jurisdictions, namespaces"}
	wrong({"jurisdictions": {"eu": "europe-"}}) == {"jurisdictions.eu must be a list of beginnings of regions"}
	wrong({"jurisdictions": {"eu": []}}) == {"jurisdictions.eu must be a list of beginnings of regions"}
	wrong({"jurisdictions": {"eu": [""]}}) == {"jurisdictions.eu must be a list of beginnings of regions"}
	wrong({"jurisdictions": {}, "namespaces": {"a": "eu"}}) == {"namespaces.a: there is no jurisdiction eu"}
}

test_without_parameters_there_is_a_problem if {
	count(pack.parameter_problems) == 1
}
