package policies.image_registry

import data.lib.images
import data.lib.objects

allowed := {"registry.example", "img.example"}

decision contains message if {
	some container in objects.containers(input)
	not images.registry(container.image) in allowed
	message := sprintf("%s comes from elsewhere", [container.name])
}
