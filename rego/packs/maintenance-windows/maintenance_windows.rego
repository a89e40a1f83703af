# METADATA
# title: Maintenance windows
# description: No workload runs on a cluster while a window of its maintenance is open
package placement.packs.maintenance_windows

import data.placement.parameters

default _parameters := null

_parameters := data["kube-federation-scheduling-policy"]["maintenance-windows"]

# METADATA
# description: Clusters in maintenance
objections[name] contains sprintf("maintenance window %s is open", [window]) if {
	some window, terms in _parameters.windows
	_is_open(terms, time.now_ns())
	some name in terms.clusters
}

# METADATA
# description: What is wrong with the parameters
parameter_problems contains problem if {
	some problem in parameters.problems(_parameters, {"windows": "object", "lead": "string"})
}

parameter_problems contains "lead must be a duration as 30m" if {
	lead := _parameters.lead
	not _is_duration(lead)
}

parameter_problems contains sprintf("windows.%s: %s", [window, problem]) if {
	some window, terms in _parameters.windows
	some problem in _problems(terms)
}

_problems(terms) := ((parameters.problems(terms, {
	"clusters": "array",
	"from": "string",
	"until": "string",
	"repeat": "string",
}) | {message |
	some key in ["from", "until"]
	not _is_time(terms, key)
	message := sprintf("%s must be a time as 2026-12-01T22:00:00Z", [key])
}) | {"repeat must be a duration as 168h" |
	repeat := terms.repeat
	not _is_duration(repeat)
}) | {"clusters are missing" |
	not terms.clusters
}

# Half-open, from the lead before the beginning on; again after each `repeat`.
_is_open(terms, now) if {
	not terms.repeat
	now >= _begins(terms)
	now < time.parse_rfc3339_ns(terms.until)
}

_is_open(terms, now) if {
	now >= _begins(terms)
	elapsed := (now - _begins(terms)) % time.parse_duration_ns(terms.repeat)
	elapsed < time.parse_rfc3339_ns(terms.until) - _begins(terms)
}

_begins(terms) := time.parse_rfc3339_ns(terms.from) - _lead

default _lead := 0

_lead := time.parse_duration_ns(_parameters.lead)

_is_duration(text) if regex.match(`^([0-9]+(h|m|s))+$`, text)

_is_time(terms, key) if time.parse_rfc3339_ns(terms[key]) > 0
