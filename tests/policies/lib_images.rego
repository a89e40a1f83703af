package lib.images

registry(image) := split(image, "/")[0] if contains(image, "/")

registry(image) := "docker.io" if not contains(image, "/")

tag(image) := last if {
	parts := split(image, ":")
	count(parts) > 1
	last := parts[count(parts) - 1]
} else := "latest"
