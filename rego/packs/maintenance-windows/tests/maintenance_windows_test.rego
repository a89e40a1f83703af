package maintenance_windows_test

import data.placement.packs.maintenance_windows as pack

once := {"clusters": ["paris"], "from": "2026-12-05T22:00:00Z", "until": "2026-12-06T02:00:00Z"}

weekly := object.union(once, {"repeat": "168h"})

opposed(window, lead, now) := objections if {
	objections := pack.objections with time.now_ns as time.parse_rfc3339_ns(now)
		with data["kube-federation-scheduling-policy"] as {"maintenance-windows": object.union(
			{"windows": {"upgrade": window}},
			lead,
		)}
}

open := {"paris": {"maintenance window upgrade is open"}}

wrong(parameters) := problems if {
	problems := pack.parameter_problems with data["kube-federation-scheduling-policy"] as {"maintenance-windows": parameters}
}

test_a_window_is_open_from_its_beginning_until_its_end if {
	opposed(once, {}, "2026-12-05T21:59:59Z") == {}
	opposed(once, {}, "2026-12-05T22:00:00Z") == open
	opposed(once, {}, "2026-12-06T01:59:59Z") == open
	opposed(once, {}, "2026-12-06T02:00:00Z") == {}
}

test_workloads_leave_before_it_begins if {
	opposed(once, {"lead": "1h30m"}, "2026-12-05T20:29:59Z") == {}
	opposed(once, {"lead": "1h30m"}, "2026-12-05T20:30:00Z") == open
	opposed(once, {"lead": "1h30m"}, "2026-12-06T02:00:00Z") == {}
}

test_a_window_may_come_again if {
	opposed(weekly, {}, "2026-11-28T23:00:00Z") == {}
	opposed(weekly, {}, "2026-12-05T23:00:00Z") == open
	opposed(weekly, {}, "2026-12-12T23:00:00Z") == open
	opposed(weekly, {}, "2026-12-13T02:00:00Z") == {}
	opposed(weekly, {"lead": "1h"}, "2027-01-02T21:00:00Z") == open
}

test_time_of_another_zone_is_understood if {
	opposed(object.union(once, {"from": "2026-12-05T23:00:00+01:00"}), {}, "2026-12-05T22:00:00Z") == open
}

test_parameters_are_checked if {
	wrong({"windows": {"a": weekly}, "lead": "30m"}) == set()
	wrong({"window": {}}) == {"window is no parameter; there are lead, windows"}
	wrong({"lead": "30"}) == {"lead must be a duration as 30m"}
	wrong({"windows": {"a": object.union(once, {"form": ""})}}) == {"windows.a: form is no parameter; there are clusters, from, repeat, until"}
	wrong({"windows": {"a": object.union(once, {"until": "tomorrow"})}}) == {"windows.a: until must be a time as 2026-12-01T22:00:00Z"}
	wrong({"windows": {"a": object.remove(once, ["from"])}}) == {"windows.a: from must be a time as 2026-12-01T22:00:00Z"}
	wrong({"windows": {"a": object.union(once, {"repeat": "weekly"})}}) == {"windows.a: repeat must be a duration as 168h"}
	wrong({"windows": {"a": object.remove(once, ["clusters"])}}) == {"windows.a: clusters are missing"}
}

wrong_with(terms) := wrong({"windows": {"a": object.union(once, terms)}})

test_a_window_ends_after_it_begins if {
	every until in [once.from, "2026-12-05T21:00:00Z", "2026-12-05T22:30:00+01:00"] {
		wrong_with({"until": until}) == {"windows.a: until must be after from"}
	}
	wrong_with({"until": "2026-12-05T22:00:01Z"}) == set()
}

test_a_window_is_over_before_it_comes_again if {
	every repeat in ["0s", "0h0m", "3h59m59s"] {
		wrong_with({"repeat": repeat}) == {"windows.a: repeat must be longer than 0s, and not shorter than the window"}
	}
	wrong_with({"repeat": "4h"}) == set()
	wrong_with({"repeat": "99999999999h"}) == {"windows.a: repeat must be a duration as 168h"}
}

test_a_window_is_of_clusters if {
	wrong_with({"clusters": []}) == {"windows.a: clusters must name one cluster or more"}
	wrong_with({"clusters": ["paris", ""]}) == {"windows.a: clusters must be names, and  is none"}
	wrong_with({"clusters": [1, null]}) == {
		"windows.a: clusters must be names, and 1 is none",
		"windows.a: clusters must be names, and null is none",
	}
	wrong_with({"clusters": "paris"}) == {"windows.a: clusters must be of type array, and is of type string"}
	wrong({"windows": {"a": []}}) == {"windows.a: must be of type object, and is of type array"}
	wrong({"windows": {"a": null}}) == {"windows.a: must be of type object, and is of type null"}
}

noted(names, clusters) := notes if {
	notes := pack.parameter_notes with data.kubernetes.clusters as clusters
		with data["kube-federation-scheduling-policy"] as {"maintenance-windows": {"windows": {"a": object.union(once, {"clusters": names})}}}
}

test_a_cluster_that_is_not_registered_is_noted if {
	noted(["paris", "pariss", 1], {"fleet": {"paris": {}}}) == {"windows.a: there is no cluster pariss"}
	noted(["paris"], {"fleet": {"milan": {}}, "other": {"paris": {}}}) == set()
	noted(["paris"], {}) == set()
}

test_a_window_that_comes_again_before_it_is_over_is_noted if {
	noted_of := {lead: notes |
		some lead in ["0s", "1h"]
		parameters := {"lead": lead, "windows": {"a": object.union(once, {"repeat": "5h"})}}
		notes := pack.parameter_notes with data["kube-federation-scheduling-policy"] as {"maintenance-windows": parameters}
	}
	noted_of == {"0s": set(), "1h": {"windows.a: it is always open"}}
}

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
