# METADATA
# title: Merging
# description: |
#   The three ways of the design proposal to make several policies one spec, in the byte order of
#   their names, and a fourth in which a pod has to satisfy each of them: the proposal's reviewers
#   asked for one that no further policy can open.
package kube_sync.scheduling.merge

import data.kube_sync.scheduling.policies
import data.kube_sync.scheduling.settings

# METADATA
# description: The names of the policies that count, in order
names := [sort(object.keys(policies.specs))[0]] if {
	settings.merge_option == 2
	count(policies.specs) > 0
} else := sort(object.keys(policies.specs))

# METADATA
# description: The spec that says what the policies say together; under option 4, what they all say
merged := _specs[0] if {
	settings.merge_option == 2
} else := {section: fields | some section, fields in _by_field} if {
	settings.merge_option == 3
} else := _common if {
	settings.merge_option == 4
} else := _united

# METADATA
# description: The specs that a pod has to satisfy, every one of them
judging := _specs if {
	settings.merge_option == 4
} else := [merged]

# METADATA
# description: What a pod is given where it says nothing
given := object.get(_united, "default", {}) if {
	settings.merge_option == 4
} else := object.get(merged, "default", {})

_specs := [policies.specs[name] | some name in names]

_from_last := array.reverse(_specs)

# Field by field, and of a field that has keys, key by key: no deeper, or an affinity would be made
# that no policy names.
_first(section) := {field: _keys_first([value | value := _specs[_][section][field]]) |
	some field in {field | some field, _ in _specs[_][section]}
}

_keys_first(values) := values[0] if not is_object(values[0])

# Of two objects, object.union_n lets the later one win; in lists of one it goes no deeper.
_keys_first(values) := {key: value |
	some key, [value] in object.union_n([{key: [value] | some key, value in keys} |
		some keys in array.reverse(values)
	])
} if {
	is_object(values[0])
}

_sections := {section | some section, _ in _specs[_]}

# In lists of one, so that the union goes no deeper than the fields.
_by_field := {section: {field: value | some field, [value] in fields} |
	some section in _sections
	fields := object.union_n([{field: [value] | some field, value in spec[section]} |
		some spec in _from_last
	])
}

_united := {section: fields |
	some section in _sections
	fields := _united_section(section)
}

_united_section("allowed") := _allowed

_united_section(section) := _first(section) if section != "allowed"

_allowed := object.union_n([_allowed_lists, _allowed_selectors, _allowed_affinities])

_allowed_lists := {field: _lists_united(lists) |
	some field in ["schedulerNames", "priorityClasseNames", "tolerations", "nodeNames"]
	lists := [list | list := _specs[_].allowed[field]]
	count(lists) > 0
}

# An empty list allows all, and all of it and some more is all.
_lists_united(lists) := [] if [] in lists

_lists_united(lists) := _distinct(array.flatten(lists)) if not [] in lists

# In the order in which they are first seen.
_distinct(items) := [item |
	last := count(items) - 1
	places := object.union_n([{item: last - index} | some index, item in array.reverse(items)])
	some [_, item] in sort([[place, item] | some item, place in places])
]

_allowed_selectors := {"nodeSelectors": selectors |
	maps := [map | map := _specs[_].allowed.nodeSelectors]
	count(maps) > 0
	selectors := _maps_united(maps)
}

_maps_united(maps) := {} if {} in maps

_maps_united(maps) := {key: _lists_united(lists) |
	some key in {key | some key, _ in maps[_]}
	lists := [list | list := maps[_][key]]
} if {
	not {} in maps
}

_allowed_affinities := {"affinities": affinities |
	kinds := [kinds | kinds := _specs[_].allowed.affinities]
	count(kinds) > 0
	affinities := _kinds_united(kinds)
}

_kinds_united(maps) := {} if {} in maps

_kinds_united(maps) := {kind: _halves_united(halves) |
	some kind in {kind | some kind, _ in maps[_]}
	halves := [half | half := maps[_][kind]]
} if {
	not {} in maps
}

_halves_united(maps) := {} if {} in maps

_halves_united(maps) := {half: _patterns_united(patterns) |
	some half in {half | some half, _ in maps[_]}
	patterns := [pattern | pattern := maps[_][half]]
} if {
	not {} in maps
}

_patterns_united(halves) := {} if {} in halves

_patterns_united(halves) := {"nodeSelectorTerms": _distinct(terms)} if {
	not {} in halves
	is_object(halves[0])
	terms := array.flatten([half.nodeSelectorTerms | some half in halves])
}

_patterns_united(halves) := _distinct(array.flatten(halves)) if {
	not {} in halves
	is_array(halves[0])
}

# To read, not to judge by: patterns that overlap have no intersection that is a pattern.
_common := {
	"required": _first("required"),
	"default": _first("default"),
	"allowed": {field: value |
		some field, value in _specs[0].allowed
		every spec in _specs {
			spec.allowed[field] == value
		}
	},
}
