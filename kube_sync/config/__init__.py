"""The configuration file and the environment, as frozen Settings.

Invariant: this package is the only reader of either; the Settings that it returns are validated, so
no other module checks them again. Every error is one `Misconfigured` line that begins with the path
of the field. Every field has an environment variable: `KUBE_SYNC_` and its path in capitals,
joined by `_` (`opa.token_file` is `KUBE_SYNC_OPA_TOKEN_FILE`); it overrides the file.
"""

from __future__ import annotations

from kube_sync import CONFIG_ENV
from kube_sync.config.addresses import check_stream, masked, parse_listen
from kube_sync.config.environment import ENV_PREFIX, Field, fields
from kube_sync.config.explanation import Key, explained, keys
from kube_sync.config.kinds import Section
from kube_sync.config.load import Source, effective, load_settings, source_of
from kube_sync.config.model import LIVE, Coordination, Kubernetes, Observe, Opa, Settings, Tracing
from kube_sync.config.remediation import (
    AddFirst,
    Guard,
    Health,
    OcmPlacementDecisions,
    PlacementDecisions,
    PlacementForm,
    Remediate,
    SinkName,
    Sinks,
)
from kube_sync.config.replication import (
    CLUSTERS,
    TOPOLOGY,
    Allow,
    Decisions,
    Labelled,
    Ledger,
    Placement,
    Policies,
    Replicate,
    Resource,
    Target,
    WarningCode,
)
from kube_sync.config.rules import Metadata, Scheduling
from kube_sync.config.syncing import PolicySync, Spokes, SyncBrakes
from kube_sync.config.systems import (
    SYSTEMS,
    System,
    chosen,
    exempt_namespaces,
    supplied,
    with_builtin,
)
from kube_sync.config.topology import PolicyTopology, TopologyLink
from kube_sync.config.webhook import Admission, EnforceSchedulingPolicy, Engine

__all__ = [
    "CLUSTERS",
    "CONFIG_ENV",
    "ENV_PREFIX",
    "LIVE",
    "SYSTEMS",
    "TOPOLOGY",
    "AddFirst",
    "Admission",
    "Allow",
    "Coordination",
    "Decisions",
    "EnforceSchedulingPolicy",
    "Engine",
    "Field",
    "Guard",
    "Health",
    "Key",
    "Kubernetes",
    "Labelled",
    "Ledger",
    "Metadata",
    "Observe",
    "OcmPlacementDecisions",
    "Opa",
    "Placement",
    "PlacementDecisions",
    "PlacementForm",
    "Policies",
    "PolicySync",
    "PolicyTopology",
    "Remediate",
    "Replicate",
    "Resource",
    "Scheduling",
    "Section",
    "Settings",
    "SinkName",
    "Sinks",
    "Source",
    "Spokes",
    "SyncBrakes",
    "System",
    "Target",
    "TopologyLink",
    "Tracing",
    "WarningCode",
    "check_stream",
    "chosen",
    "effective",
    "exempt_namespaces",
    "explained",
    "fields",
    "keys",
    "load_settings",
    "masked",
    "parse_listen",
    "source_of",
    "supplied",
    "with_builtin",
]
