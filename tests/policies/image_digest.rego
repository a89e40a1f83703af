package policies.image_digest

import data.lib.objects

decision := [container.name |
	some container in objects.containers(input)
	not contains(container.image, "@sha256:")
]
