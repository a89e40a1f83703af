"""The configuration of the admission webhook, also in the form of the design document.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from typing import Literal

from kube_sync.config.kinds import Attempts, Bytes, File, Listen, Seconds, Section, Url, Workers

Classes = Literal["off", "verify", "on"]  # whether answers are reused by class


class Engine(Section, frozen=True):
    """The policy engine that the webhook queries. A key that is not set is taken from `opa`.

    Dialects: `v1` sends `{"input": OBJECT}` and expects `{"result": DECISION}`; `v0` sends OBJECT
    and expects DECISION; `review` is `v1` with the request of the AdmissionReview as the input;
    `annotations` is `v1` with only the annotations as the answer.
    """

    dialect: Literal["v1", "v0", "review", "annotations"] = "v1"
    """Format of requests and answers, see `admission.engine`."""
    url: Url | None = None
    """URL of the engine, without the path; null: `opa.url`."""
    path: str | None = None
    """Path of the URL, beginning with `/`; null: determined by the dialect and `placement.path`."""
    token_file: File | None = None
    """File with the bearer token for the engine; null: `opa.token_file`."""
    ca_file: File | None = None
    """CA certificates that verify the engine's certificate; null: `opa.ca_file`."""
    cert_file: File | None = None
    """Client certificate (PEM) that the webhook presents to the engine; null: none. Requires
    `key_file`."""
    key_file: File | None = None
    """Private key (PEM) of that certificate."""
    timeout_seconds: Seconds = 2.0
    """Timeout of one attempt, in seconds, also for queries of the systems in `builtin`."""
    attempts: Attempts = 5
    """Maximum number of attempts for one decision, within the API server's timeout."""
    backoff_seconds: Seconds = 0.1
    """Seconds before the second attempt; the delay grows with each attempt."""


class Registration(Section, frozen=True):
    """The webhook configurations that the webhook keeps up to date."""

    name: str | None = None
    """Name of the two webhook configurations for placement; null: no configuration is kept up to
    date, including those of the systems in `builtin`."""
    ca_file: File | None = None
    """CA certificates for the `caBundle` of these configurations; null: the `caBundle` is managed
    elsewhere."""


class Admission(Section, frozen=True):
    """The admission webhook: its server, the engine that it queries, and its registration."""

    listen: Listen = "0.0.0.0:8443"  # the API server calls from another machine
    """Address on which the webhook serves the API server."""
    cert_file: File | None = None
    """Certificate (PEM) of the server; null: `admit` does not start, and `run` serves no webhook.
    Requires `key_file`."""
    key_file: File | None = None
    """Private key (PEM) of that certificate."""
    client_ca_file: File | None = None
    """CA certificates that verify the certificates of clients; null: clients need no
    certificate."""
    client_names: tuple[str, ...] = ()
    """Common or DNS names of which a client certificate needs one; `[]`: any name. Requires
    `client_ca_file`."""
    max_body_bytes: Bytes = 8 << 20
    """Maximum size of a request body, in bytes; a larger request gets the status 413."""
    workers: Workers = 1
    """Number of processes that serve the webhook on `listen`, one for each core that it is to use.
    `kube-sync run` has one."""
    drain_seconds: Seconds = 10.0
    """Maximum time for requests in progress to finish when the process ends, in seconds."""
    owned: Literal["restore", "deny"] = "restore"
    """What happens to a request that changes a value which the policy sets: the value is reset
    (`restore`), or the request is denied (`deny`)."""
    remediator: str = "system:serviceaccount:kube-sync:kube-sync-remediator"
    """User name of the remediator, which may change these values."""
    events: bool = True
    """Creates an Event for each denial, except of dry runs."""
    classes: Classes | None = None
    """Whether answers of OPA are reused for reviews of the same class, as the replicator at
    `decisions.url` confirms them: `on`, or `verify`, which asks OPA too, compares, and counts
    differences. Null: `on` if `decisions.token_file` is set, otherwise `off`."""
    classes_outage_seconds: Seconds = 60.0
    """How long known classes are decided on while OPA is down and nothing that the policies read
    has changed."""
    engine: Engine = Engine()
    registration: Registration = Registration()


class EnforceSchedulingPolicy(Section, frozen=True):
    """The configuration of the admission controller as the design document has it.

    `url` is the complete URL, and its path determines the dialect of `admission.engine`: `v0` if it
    begins with `/v0/`, `annotations` if it ends with `/annotations`, else `v1`.
    """

    url: Url | None = None
    """URL to query for placement decisions, instead of `admission.engine`; null: `admission.engine`
    is used."""
    token: str | None = None
    """Bearer token for this URL, one word of ASCII, masked in all output; null: none. Requires
    `url`."""
