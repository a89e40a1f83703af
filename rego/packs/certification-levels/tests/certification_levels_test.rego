package certification_levels_test

import data.placement.packs.certification_levels as pack

said := {"certifications": ["iso", "pci"], "namespaces": {"payments": {"pci": 2}}}

certified(text) := {"metadata": {"annotations": {"policy.example.com/certifications": text}}}

clusters := {"fleet": {
	"vault": certified("pci=3, iso=1"),
	"store": certified("pci=1"),
	"twice": certified("pci=3,pci=1"),
	"attic": certified("pci=three,iso"),
	"silent": {"metadata": {}},
}}

opposed(resource) := {name | some name, _ in objections} if {
	objections := pack.objections with input as resource
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"certification-levels": said}
}

problems_of(text) := problems if {
	problems := pack.problems with input as certified(text)
		with data["kube-federation-scheduling-policy"] as {"certification-levels": said}
}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"certification-levels": parameters}
}

test_clusters_below_a_level_are_opposed if {
	opposed(certified("pci=1")) == {"attic", "silent"}
	opposed(certified("pci=2")) == {"store", "twice", "attic", "silent"}
	opposed(certified("pci=1,iso=1")) == {"store", "twice", "attic", "silent"}
	opposed({"metadata": {"namespace": "shop"}}) == set()
	opposed(certified("pci=0")) == set()
}

test_the_levels_of_the_namespace_hold_too if {
	opposed({"metadata": {"namespace": "payments"}}) == {"store", "twice", "attic", "silent"}
	opposed(object.union(certified("pci=1"), {"metadata": {"namespace": "payments"}})) == {"store", "twice", "attic", "silent"}
}

test_objection_says_both_levels if {
	objections := pack.objections with input as certified("pci=2")
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"certification-levels": said}
	objections.store == {"pci 1 is below 2"}
}

test_what_cannot_be_read_is_a_problem if {
	problems_of("pci=1, iso=0") == set()
	every text in ["pcl=1", "pci", "pci=x", "pci=-1", "", "pci=1=2"] {
		problems_of(text) == {sprintf(
			"annotation policy.example.com/certifications: %q must be as pci=2, of one of iso, pci",
			[text],
		)}
	}
}

test_parameters_are_checked if {
	wrong(said) == set()
	wrong({"certificatons": []}) == {
		"certifications are missing",
		"certificatons is no parameter; there are certifications, namespaces",
	}
	every levels in [{"pcl": 1}, {"pci": "1"}, {"pci": -1}, {"pci": 1.5}, 1] {
		wrong({"certifications": ["pci"], "namespaces": {"a": levels}}) == {"namespaces.a must be levels by one of pci"}
	}
}

test_certifications_have_to_be_names if {
	wrong({}) == {"certifications are missing"}
	wrong({"certifications": "pci"}) == {"certifications must be of type array, and is of type string"}
	wrong({"certifications": []}) == set()
	every certification in [1, null, "", "pci=2", "pci,iso", " pci"] {
		wrong({"certifications": ["pci", certification]}) == {sprintf("certifications must be names, and %v is none", [certification])}
	}
}

test_checks_hold_whatever_the_certifications_are if {
	every parameters in [{}, {"certifications": "pci"}, {"certifications": [1]}, {"certifications": null}] {
		problems := pack.problems with input as certified("pci=1")
			with data["kube-federation-scheduling-policy"] as {"certification-levels": parameters}
		problems == {`annotation policy.example.com/certifications: "pci=1" must be as pci=2, of one of `}
		every level in [{"pci": 2}, 2, "high"] {
			"namespaces.a must be levels by one of " in wrong(object.union(parameters, {"namespaces": {"a": level}}))
		}
	}
	problems := pack.problems with input as certified("pcl=1")
		with data["kube-federation-scheduling-policy"] as {"certification-levels": {"certifications": [1, "pci"]}}
	problems == {`annotation policy.example.com/certifications: "pcl=1" must be as pci=2, of one of pci`}
}

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
