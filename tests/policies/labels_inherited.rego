package policies.labels_inherited

import data.lib.objects

decision contains key if {
	some key, value in objects.namespace_labels(input)
	object.get(input, ["metadata", "labels", key], "") != value
}
