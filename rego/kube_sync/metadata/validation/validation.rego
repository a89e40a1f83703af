# METADATA
# title: Validation of MetadataPolicies
# description: |
#   What is wrong with a policy, whatever its schema let through, and what is right but cannot be meant.
package kube_sync.metadata.validation

import data.kube_sync.metadata.lint
import data.kube_sync.metadata.rules

# METADATA
# entrypoint: true
# description: |
#   Of `input.object`, a MetadataPolicy: `problems`, each of which keeps a rule from applying, and
#   `findings` beside the other policies of its namespace. Both are lists of objects with `path` and
#   `message`, findings with a `reason` of one word too; sorted.
report := {"problems": [], "findings": []} if not _asked

# No default: where these fail, it has to be seen, and does not mean that there is nothing to say.
report := {
	"problems": problems(input.object),
	"findings": lint.findings(input.object),
} if {
	_asked
}

_asked if _ = input.object

# METADATA
# description: What keeps rules of this policy from applying, sorted by path
problems(policy) := [{"path": path, "message": message} | some [path, message] in sort(_problems(policy))]

_problems(policy) := {["", "must be an object"]} if not is_object(policy)

_problems(policy) := {["spec", "must be an object"]} if {
	is_object(policy)
	not is_object(object.get(policy, "spec", {}))
}

_problems(policy) := _unknown(policy) | _of_rules(object.get(policy, ["spec", "rules"], null)) if {
	is_object(policy)
	is_object(object.get(policy, "spec", {}))
}

_unknown(policy) := {[sprintf("spec.%s", [field]), "is no field of a MetadataPolicy"] |
	some field, _ in policy.spec
	field != "rules"
}

_of_rules(null) := set()

_of_rules(list) := {["spec.rules", "must be a list"]} if {
	list != null
	not is_array(list)
}

_of_rules(list) := {[sprintf("spec.rules[%d]%s", [i, path]), message] |
	some i, rule in list
	some [path, message] in rules.faults(rule)
} if {
	is_array(list)
}
