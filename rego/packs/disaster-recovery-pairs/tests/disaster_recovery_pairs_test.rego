package disaster_recovery_pairs_test

import data.placement.packs.disaster_recovery_pairs as pack

said := {"pairs": [["paris", "milan"], ["oslo", "bergen"]], "namespaces": ["payments"]}

clusters := {"fleet": {"paris": {}, "milan": {}, "oslo": {}, "tokyo": {}}}

decided(resource) := decision if {
	decision := pack with input as resource
		with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"disaster-recovery-pairs": said}
}

asks(namespace, text) := {"metadata": {
	"namespace": namespace,
	"annotations": {"policy.example.com/disaster-recovery": text},
}}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"disaster-recovery-pairs": parameters}
}

test_clusters_of_pairs_need_each_other if {
	every resource in [asks("shop", "pair"), {"metadata": {"namespace": "payments"}}] {
		decision := decided(resource)
		decision.companions.paris == {"milan"}
		decision.companions.milan == {"paris"}
		decision.objections == {"tokyo": {"is of no disaster-recovery pair"}}
	}
}

test_who_needs_no_pair_is_left_alone if {
	every resource in [asks("shop", "none"), {"metadata": {"namespace": "shop"}}] {
		decision := decided(resource)
		decision.companions == {}
		decision.objections == {}
		decision.problems == set()
	}
}

test_other_answers_are_problems if {
	decided(asks("shop", "yes")).problems == {`annotation policy.example.com/disaster-recovery must be "pair" or "none", not "yes"`}
	decided(asks("payments", "none")).problems == {`annotation policy.example.com/disaster-recovery: the namespace needs "pair"`}
}

test_parameters_are_checked if {
	wrong(said) == set()
	wrong({"pair": []}) == {"pair is no parameter; there are namespaces, pairs"}
	every pair in [["a"], ["a", "a"], ["a", "b", "c"], ["a", 1], "ab"] {
		wrong({"pairs": [pair]}) == {"pairs[0] must be the names of two clusters"}
	}
	wrong({"pairs": [["a", "b"], ["c", "a"]]}) == {"a is in more than one of pairs"}
}

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
