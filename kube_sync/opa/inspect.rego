# METADATA
# title: Policy inspection
# description: |
#   What modules say of themselves before they are compiled: their package and, of those that may
#   name a builtin that is not allowed to all, every name they refer to. One that does not parse
#   is left out.
package kube_sync.inspect

# METADATA
# description: By id, the parts of a module's package and the dotted names in it
# entrypoint: true
modules[id] := {"package": _package(module), "names": _names(id, module)} if {
	some id, source in input.sources
	module := rego.parse_module(id, source)
}

# The first part is the variable `data`.
_package(module) := [part.value | some i, part in module["package"].path; i > 0]

_names(id, module) := {name |
	id in input.suspects
	walk(module, [_, node])
	node.type == "ref"
	every part in node.value {
		is_string(part.value)
	}
	name := concat(".", [part.value | some part in node.value])
}
