# METADATA
# title: What is judged
# description: |
#   Which requests are about an object that somebody writes, in which namespace, and of which kind.
#   Of another shape than the API server's, a request is read as far as it can be.
package kube_sync.metadata.scope

# METADATA
# description: |
#   True of a request that creates or updates an object. Neither a deletion nor a subresource does: the
#   status that a kubelet writes, or a binding, is not what an author asks for.
written(request) if {
	not _operation(request) in {"DELETE", "CONNECT"}
	object.get(request, "subResource", "") in {"", null}
}

# METADATA
# description: |
#   True of an update to an object that is being deleted which leaves its spec, labels and annotations
#   as they were: nothing may hold up a finalizer that is removed
leaving(request) if {
	_operation(request) == "UPDATE"

	# Of the new object it is what the author sent; the API server corrects it after admission.
	is_string(object.get(request, ["oldObject", "metadata", "deletionTimestamp"], null))
	every name in ["labels", "annotations"] {
		map_of(object_of(request), name) == map_of(request.oldObject, name)
	}
	object.get(object_of(request), "spec", null) == object.get(request.oldObject, "spec", null)
}

# METADATA
# description: The object of a request; an empty one where there is none
object_of(request) := object.get(request, "object", {}) if is_object(request.object)

object_of(request) := {} if not is_object(object.get(request, "object", null))

# METADATA
# description: The labels or the annotations of an object, empty where it has none
map_of(whole, name) := found if {
	found := whole.metadata[name]
	is_object(found)
}

map_of(whole, name) := {} if not is_object(object.get(whole, ["metadata", name], null))

# METADATA
# description: |
#   The namespace whose policies apply; undefined for objects of the cluster, among them Namespace,
#   for which the API server names a namespace as well
namespace_of(request) := namespace if {
	not is_a(request, "", "Namespace")
	namespace := _namespace(request)
}

# METADATA
# description: True where the request is about this kind of this group (empty for the core)
is_a(request, group, kind) if {
	is_string(request.kind.kind)
	request.kind.kind == kind
	object.get(request.kind, "group", "") == group
}

is_a(request, group, kind) if {
	not is_string(object.get(request, ["kind", "kind"], null))
	whole := object_of(request)
	whole.kind == kind
	_group(object.get(whole, "apiVersion", "v1")) == group
}

_operation(request) := object.get(request, "operation", "")

_namespace(request) := request.namespace if _named(request.namespace)

_namespace(request) := namespace if {
	not _named(object.get(request, "namespace", null))
	namespace := object_of(request).metadata.namespace
	_named(namespace)
}

_named(namespace) if {
	is_string(namespace)
	namespace != ""
}

_group(version) := group if [group, _] = split(version, "/")

_group(version) := "" if {
	is_string(version)
	not contains(version, "/")
}
