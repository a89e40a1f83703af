"""The generated Rego module that evaluates the placement decision for many objects at once.

It evaluates the decision `with input as` each replicated object, restored as its owner requested it
(`requested`), so that a query names objects and sends none. With a list of inputs it returns these
and other data as well, but never a Secret. It also has the limits that policies set on moves, and
the decision on one input with the epoch of the data, which tells the webhook whose answer it is.
"""

from __future__ import annotations

from typing import Final

from kube_sync.decisions.decision import REQUESTED
from kube_sync.opa.lanes import Lane, batch_package, lane_path
from kube_sync.opa.paths import DataPath, reference

BATCH_MODULE = "kube_sync/replicator/batch"  # the module's id
REVIEWED_PATH: Final = "kube_sync/batch/reviewed"  # the decision on the input, with the epoch
_PACKAGE: DataPath = ("kube_sync", "batch")

_BUDGET = """
# What policies say of how much may move; {} where they say nothing.
budget := {"document": _shown(document) | document := data.kube_sync_budget} if {
	data.kube_sync.epoch[input.epoch] == "loaded"
}

# OPA counts helpers among what a package says.
_shown(document) := {name: value | some name, value in document; not startswith(name, "_")} if {
	is_object(document)
} else := document
"""

_DECISIONS = """
# No answer at all unless everything is loaded. Undefined is an answer: what is present without a
# decision keeps its uid alone.
decisions := object.union(_present, _decided) if data.kube_sync.epoch[input.epoch] == "loaded"

_present[index] := {"uid": object.metadata.uid} if some index, object in _objects
"""

_ASKED = f"""
# Each object as it was asked for; most have nothing to put back, and cost one look-up.
_asked(found) := found if not found.metadata.annotations["{REQUESTED}"]

_asked(found) := object.union(object.remove(found, ["metadata"]), {{"metadata": metadata}}) if {{
	annotations := found.metadata.annotations
	requests := _requests(annotations["{REQUESTED}"])
	others := object.remove(annotations, object.union(requests, {{"{REQUESTED}": null}}))
	values := {{key: value | some key, value in requests; value != null}}
	metadata := object.union(
		object.remove(found.metadata, ["annotations"]),
		{{"annotations": object.union(others, values)}},
	)
}}

_requests(text) := object.remove(requests, ["{REQUESTED}"]) if {{
	requests := json.unmarshal(text)
	_are_requests(requests)
}} else := {{}}

_are_requests(requests) if {{
	is_object(requests)
	every value in requests {{
		type_name(value) in {{"null", "string"}}
	}}
}}
"""


def _reviewed(decision: str) -> str:
    # One rule: two, for its members, cost OPA half as much again.
    return f"""
# The decision on the input as it is, and the load of data that it was made on.
reviewed := {{"epochs": epochs, "decision": decision}} if {{
	epochs := [epoch | some epoch, "loaded" in data.kube_sync.epoch]
	decision := {decision}
}} else := {{"epochs": [epoch | some epoch, "loaded" in data.kube_sync.epoch]}}
"""


def package_of(lane: Lane | None) -> DataPath:
    """Return the package of the module, or of its copy in a lane."""
    return _PACKAGE if lane is None else batch_package(lane)


def batch_module(root: str, path: str, lane: Lane | None = None) -> str:
    """Return the Rego module that evaluates `path` for many objects below `root`, or in a lane.

    It has limits, and the decision on an input, only for the policies in force, not for a lane.
    """
    path = path if lane is None else lane_path(lane, path)
    decision, data = reference(path.split("/")), reference((root,))
    return f"""package {".".join(package_of(lane))}
{_DECISIONS}
# The same with the inputs and collections that are asked for, and which batch came last.
witnessed := {{
	"decisions": decisions,
	"inputs": {{index: _asked(object) |
		some index in input.inputs
		object := _objects[index]
		not object.kind == "Secret"
	}},
	"data": {{name: {data}[name] | some name in input.data}},
	"fence": data.kube_sync.fence[input.epoch],
}}
{_BUDGET + _reviewed(decision) if lane is None else ""}
_decided[index] := {{"uid": object.metadata.uid, "decision": decision}} if {{
	some index, object in _objects
	decision := {decision} with input as _asked(object)
}}
{_ASKED}
_objects[index] := {data}[input.collection][namespace][name] if {{
	some index, [namespace, name] in input.items
	namespace != ""
}}

_objects[index] := {data}[input.collection][name] if {{
	some index, ["", name] in input.items
}}
"""
