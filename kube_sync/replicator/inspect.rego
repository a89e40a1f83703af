# METADATA
# title: Policy inspection
# description: |
#   What a policy ConfigMap's module may not do, whatever it decides: take over OPA's own
#   packages or the replicator's, claim a place where replicated data lies, or reach the network
#   or OPA's environment.
package kube_sync.inspect

# METADATA
# description: Reasons to refuse the module in input.source; none for one that does not parse
findings contains sprintf("package %s is reserved", [concat(".", _package)]) if {
	_package[0] in {"system", "kube_sync"}
}

findings contains sprintf("package %s is where replicated data lies", [concat(".", _package)]) if {
	some root in input.roots
	array.slice(_package, 0, count(root)) == root
}

findings contains sprintf("builtin %s is not allowed: it reaches outside OPA", [name]) if {
	some name in (_names & {"http.send", "net.lookup_ip_addr", "opa.runtime"})
}

_module := rego.parse_module("module.rego", input.source)

# The first part is the variable `data`.
_package := [part.value | some i, part in _module["package"].path; i > 0]

_names contains concat(".", [part.value | some part in node.value]) if {
	walk(_module, [_, node])
	node.type == "ref"
	every part in node.value {
		is_string(part.value)
	}
}
