package policies.image_latest

import data.lib.images
import data.lib.objects

default decision := true

decision := false if {
	some container in objects.containers(input)
	images.tag(container.image) == "latest"
}
