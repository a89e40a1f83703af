# METADATA
# title: What is wrong with parameters
# description: The replicator writes it into the status annotation of the ConfigMap that it is about
package kube_sync_parameters

import data.placement.composition

# METADATA
# description: Messages by the namespace and name of a ConfigMap
problems[sprintf("kube-federation-scheduling-policy/%s", [replace(pack, "_", "-")])] contains problem if {
	some pack
	some problem in data.placement.packs[pack].parameter_problems
}

problems["kube-federation-scheduling-policy/placement"] contains problem if {
	some problem in composition.parameter_problems
}

problems[configmap] contains note if some note in composition.notes[configmap]
