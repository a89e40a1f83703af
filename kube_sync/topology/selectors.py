"""Label selectors of Kubernetes (metav1.LabelSelector): matchLabels and matchExpressions."""

from __future__ import annotations

from collections.abc import Mapping

from kube_sync.topology.nodes import Body
from kube_sync.topology.shapes import Malformed, items, mapping, text, texts


def selects(selector: Body, labels: Mapping[str, str]) -> bool:
    """Tell whether a selector selects labels; an empty one selects all. Raises Malformed."""
    wanted = mapping(selector, "matchLabels")
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(expression, labels) for expression in items(selector, "matchExpressions")
    )


def _holds(expression: Body, labels: Mapping[str, str]) -> bool:
    key, operator = text(expression, "key"), text(expression, "operator")
    values = texts(expression, "values")
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    msg = f'matchExpressions.operator: "{operator}" is none'
    raise Malformed(msg)
