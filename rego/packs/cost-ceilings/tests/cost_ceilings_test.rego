package cost_ceilings_test

import data.placement.packs.cost_ceilings as pack

said := {"ceiling": 10, "namespaces": {"batch": 3}}

costing(text) := {"metadata": {"labels": {"policy.example.com/cost": text}}}

clusters := {"fleet": {
	"spot": costing("1.5"),
	"plain": costing("4"),
	"large": costing("12"),
	"cheap": costing("cheap"),
	"silent": {"metadata": {}},
}}

opposed(resource, parameters) := {name | some name, _ in objections} if {
	objections := pack.objections with input as resource
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"cost-ceilings": parameters}
}

asks(text) := {"metadata": {"annotations": {"policy.example.com/cost-ceiling": text}}}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"cost-ceilings": parameters}
}

test_clusters_above_the_lowest_ceiling_are_opposed if {
	opposed({}, said) == {"large", "cheap", "silent"}
	opposed(asks("1.5"), said) == {"plain", "large", "cheap", "silent"}
	opposed(asks("100"), said) == {"large", "cheap", "silent"}
	opposed({"metadata": {"namespace": "batch"}}, said) == {"plain", "large", "cheap", "silent"}
}

test_without_a_ceiling_no_cluster_is_opposed if opposed({}, {}) == set()

test_ceiling_that_is_no_amount_is_a_problem if {
	every text in ["low", "-1", "1.", "01", ""] {
		problems := pack.problems with input as asks(text)
		problems == {sprintf("annotation policy.example.com/cost-ceiling: %q is no amount", [text])}
	}
	problems := pack.problems with input as asks("0.5")
	problems == set()
}

test_parameters_are_checked if {
	wrong(said) == set()
	wrong({"celing": 1}) == {"celing is no parameter; there are ceiling, namespaces"}
	wrong({"ceiling": "1"}) == {"ceiling must be of type number, and is of type string"}
	wrong({"namespaces": {"a": "1"}}) == {"namespaces.a must be a number"}
}

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
