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

test_without_parameters_there_is_a_problem if count(pack.parameter_problems) == 1
