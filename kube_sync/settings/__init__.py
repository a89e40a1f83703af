"""The configuration file and the environment, as frozen Settings.

Keeps true: this package is the only reader of either; what it returns was checked whole, so no
other module checks it again. Every mistake is one `Misconfigured` line that begins with the path
of the field. Every field has an environment variable: `KUBE_SYNC_` and its path in capitals,
joined by `_` (`opa.token_file` is `KUBE_SYNC_OPA_TOKEN_FILE`); it wins over the file.
"""

from __future__ import annotations

from kube_sync.settings.addresses import check_stream, masked, parse_listen
from kube_sync.settings.environment import CONFIG_ENV, ENV_PREFIX, Field, fields
from kube_sync.settings.explanation import Key, explained, keys
from kube_sync.settings.load import Source, effective, load_settings, source_of
from kube_sync.settings.model import (
    LIVE,
    TOPOLOGY,
    Admission,
    Allow,
    Coordination,
    Decisions,
    EnforceSchedulingPolicy,
    Engine,
    Guard,
    Kubernetes,
    Labelled,
    Ledger,
    Metadata,
    Observe,
    Opa,
    Placement,
    PlacementDecisions,
    PlacementForm,
    Policies,
    PolicySync,
    Remediate,
    Replicate,
    Resource,
    Scheduling,
    Section,
    Settings,
    Sinks,
    Spokes,
    Staging,
    SyncBrakes,
)
from kube_sync.settings.systems import SYSTEMS, System, chosen, supplied, with_builtin

__all__ = [
    "CONFIG_ENV",
    "ENV_PREFIX",
    "LIVE",
    "SYSTEMS",
    "TOPOLOGY",
    "Admission",
    "Allow",
    "Coordination",
    "Decisions",
    "EnforceSchedulingPolicy",
    "Engine",
    "Field",
    "Guard",
    "Key",
    "Kubernetes",
    "Labelled",
    "Ledger",
    "Metadata",
    "Observe",
    "Opa",
    "Placement",
    "PlacementDecisions",
    "PlacementForm",
    "Policies",
    "PolicySync",
    "Remediate",
    "Replicate",
    "Resource",
    "Scheduling",
    "Section",
    "Settings",
    "Sinks",
    "Source",
    "Spokes",
    "Staging",
    "SyncBrakes",
    "System",
    "check_stream",
    "chosen",
    "effective",
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
