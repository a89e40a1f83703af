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

# METADATA
# description: Clusters of windows that are not registered, where any is
parameter_notes contains sprintf("windows.%s: there is no cluster %s", [window, name]) if {
	registered := {name | some name, _ in data.kubernetes.clusters[_]}
	count(registered) > 0
	some window, terms in _parameters.windows
	some name in terms.clusters
	is_string(name)
	not name in registered
}

# METADATA
# description: Windows that come again, with the lead, before they are over
parameter_notes contains sprintf("windows.%s: it is always open", [window]) if {
	some window, terms in _parameters.windows
	time.parse_duration_ns(terms.repeat) <= _length(terms) + _lead
}

_problems(terms) := {sprintf("must be of type object, and is of type %s", [type_name(terms)])} if not is_object(terms)

_problems(terms) := union({mistyped, _problems_of_clusters(terms), _problems_of_times(terms), _problems_of_length(terms)}) if {
	is_object(terms)
	mistyped := parameters.problems(terms, {"clusters": "array", "from": "string", "until": "string", "repeat": "string"})
}

_problems_of_clusters(terms) := ({message |
	not terms.clusters
	message := "clusters are missing"
} | {message |
	count(terms.clusters) == 0
	message := "clusters must name one cluster or more"
}) | {message |
	some name in terms.clusters
	not regex.match(`.`, name)
	message := sprintf("clusters must be names, and %v is none", [name])
}

_problems_of_times(terms) := {message |
	some key in ["from", "until"]
	not _is_time(terms, key)
	message := sprintf("%s must be a time as 2026-12-01T22:00:00Z", [key])
} | {message |
	repeat := terms.repeat
	not _is_duration(repeat)
	message := "repeat must be a duration as 168h"
}

_problems_of_length(terms) := {message |
	_length(terms) <= 0
	message := "until must be after from"
} | {message |
	time.parse_duration_ns(terms.repeat) < max([1, _length(terms)])
	message := "repeat must be longer than 0s, and not shorter than the window"
}

_length(terms) := time.parse_rfc3339_ns(terms.until) - time.parse_rfc3339_ns(terms.from)

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

_is_duration(text) if {
	regex.match(`^([0-9]+(h|m|s))+$`, text)
	is_number(time.parse_duration_ns(text))
}

_is_time(terms, key) if time.parse_rfc3339_ns(terms[key]) > 0
