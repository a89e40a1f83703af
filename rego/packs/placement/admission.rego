# The placement decision: what the packs come to.
#
# A comment only: of a package, which examples share, METADATA may be given but once.
package io.k8s.federation.admission

import data.placement.composition

# METADATA
# description: Where the workload is to run
annotations["federation.kubernetes.io/replica-set-preferences"] := composition.preferences if composition.applies

# METADATA
# description: Why it may not run as it asks
errors contains message if {
	composition.applies
	some message in composition.errors
}
