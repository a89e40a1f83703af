"""The Gateway API as kinds and links of a topology."""

from __future__ import annotations

from kube_sync.topology.gateway.api import GatewayApi, gateway_api
from kube_sync.topology.gateway.kinds import (
    GATEWAY,
    GATEWAY_CLASS,
    LISTENER,
    LISTENER_SET,
    ROUTES,
    RULES,
    SERVICE,
    SERVICE_PORT,
)
from kube_sync.topology.gateway.validity import PLAIN, Validity

__all__ = [
    "GATEWAY",
    "GATEWAY_CLASS",
    "LISTENER",
    "LISTENER_SET",
    "PLAIN",
    "ROUTES",
    "RULES",
    "SERVICE",
    "SERVICE_PORT",
    "GatewayApi",
    "Validity",
    "gateway_api",
]
