package policies.admission_volumes

decision contains message if {
	some i, volume in input.spec.volumes
	kinds := object.keys(volume) - {"name"}
	some kind in kinds
	kind in {"hostPath", "nfs"}
	message := sprintf("volume %d is of kind %s", [i, kind])
}
