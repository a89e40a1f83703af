package io.k8s.federation.admission_test

import data.io.k8s.federation.admission

worker(region, cost) := {"metadata": {"labels": {
	"topology.kubernetes.io/region": region,
	"example.com/cost": cost,
}}}

workers := {"fleet": {
	"paris": worker("eu", "3"),
	"dublin": worker("eu", "1"),
	"oregon": worker("us", "2"),
}}

decided_on(labels) := decision if {
	workload := {"kind": "Workload", "metadata": {"labels": labels}}
	decision := admission with input as workload with data.kubernetes.clusters as workers
}

permitted(labels) := decided_on(labels).annotations["federation.kubernetes.io/replica-set-preferences"].clusters

test_a_region_has_its_clusters_the_cheapest_first if {
	permitted({"region": "eu"}) == {"dublin": {"weight": 99}, "paris": {"weight": 97}}
}

test_without_a_region_all_clusters_will_do if {
	permitted({}) == {"dublin": {"weight": 99}, "oregon": {"weight": 98}, "paris": {"weight": 97}}
}

test_reasons_say_the_cost if decided_on({"region": "us"}).reasons == {"oregon": {"costs 2"}}

test_the_urgent_wait_for_seconds if {
	decided_on({"team": "urgent"}).annotations["kube-sync.io/next-cluster-seconds"] == "5"
	not decided_on({}).annotations["kube-sync.io/next-cluster-seconds"]
}

test_a_region_without_clusters_is_refused if {
	decision := decided_on({"region": "asia"})
	decision.errors == {`no cluster is in the region "asia"`}
	decision.annotations == {}
}

test_nothing_else_is_placed if {
	decision := admission with input as {"kind": "ReplicaSet"} with data.kubernetes.clusters as workers
	decision == {"annotations": {}, "errors": set(), "reasons": {}}
}
