"""The configuration of the admission webhook, and the design's own words for it.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from typing import Literal

from kube_sync.config.kinds import Attempts, Bytes, File, Listen, Seconds, Section, Url


class Engine(Section, frozen=True):
    """The policy engine that the webhook asks; what is left out is as for OPA in `opa`.

    `v1` is `{"input": RESOURCE}` in and `{"result": ANSWER}` out; `v0` RESOURCE in and ANSWER out;
    `review` as `v1` with the AdmissionReview's request as input; `annotations` as `v1`, with the
    bare annotations for an answer.
    """

    dialect: Literal["v1", "v0", "review", "annotations"] = "v1"
    """How the engine is asked and answers."""
    url: Url | None = None
    """Where the engine is, without the path; null: `opa.url`."""
    path: str | None = None
    """Path of the URL, which begins with `/`; null: by the dialect, from `placement.path`."""
    token_file: File | None = None
    """Holds the token that is sent to the engine; null: `opa.token_file`."""
    ca_file: File | None = None
    """Authorities that the engine's certificate is checked by; null: `opa.ca_file`."""
    cert_file: File | None = None
    """Certificate by which the webhook shows the engine who it is. Goes with `key_file`."""
    key_file: File | None = None
    """Private key of that certificate."""
    timeout_seconds: Seconds = 2.0
    """Longest wait for one attempt, at OPA for what is `builtin` too."""
    attempts: Attempts = 5
    """Attempts at one decision at most, while the API server still waits."""
    backoff_seconds: Seconds = 0.1
    """Wait before the second attempt; it grows from there."""


class Registration(Section, frozen=True):
    """The webhook configurations to keep right; nothing is kept while `name` is null."""

    name: str | None = None
    """Name of the two webhook configurations for placement; null: none is kept, those for what
    is `builtin` neither."""
    ca_file: File | None = None
    """Certificates that its `caBundle` should hold; null: somebody else keeps that."""


class Admission(Section, frozen=True):
    """The webhook's own server, whom it asks, and what it does besides."""

    listen: Listen = "0.0.0.0:8443"  # the API server calls from another machine
    """Where the API server reaches the webhook."""
    cert_file: File | None = None
    """Certificate of the webhook's server; `admit` needs one, `run` serves no webhook without.
    Goes with `key_file`."""
    key_file: File | None = None
    """Private key of that certificate."""
    client_ca_file: File | None = None
    """Authorities of which callers need a certificate; null: anybody may call."""
    client_names: tuple[str, ...] = ()
    """Common or DNS names of which a caller's certificate needs one; `[]`: any."""
    max_body_bytes: Bytes = 8 << 20
    """Longest request that is read; a longer one gets the status 413."""
    drain_seconds: Seconds = 10.0
    """Longest wait, when the process ends, for requests that are being answered."""
    owned: Literal["restore", "deny"] = "restore"
    """What a change of a value that the policy decides comes to: it is put back, or refused."""
    remediator: str = "system:serviceaccount:kube-sync:kube-sync-remediator"
    """User whose changes of these values are its own to make."""
    events: bool = True
    """Makes an Event of each denial, but of dry runs."""
    classes: Literal["off", "verify", "on"] = "off"
    """Whether answers of OPA are reused for reviews of the same class, as the replicator at
    `decisions.url` confirms them: `on`, or `verify`, which asks OPA too, compares, and counts
    differences."""
    classes_outage_seconds: Seconds = 60.0
    """How long known classes are decided on while OPA is down and nothing that the policies read
    has changed."""
    engine: Engine = Engine()
    registration: Registration = Registration()


class EnforceSchedulingPolicy(Section, frozen=True):
    """The design's own configuration of its admission controller, taken as it is.

    `url` is the whole of it, with the path; how to ask there is read off the path: one that begins
    with `/v0/` is asked as `v0`, one that ends in `/annotations` as `annotations`, others as `v1`.
    """

    url: Url | None = None
    """Where to ask for placement decisions, in place of `admission.engine`; null: as that says."""
    token: str | None = None
    """Token that is sent there, one word of ASCII; it is never shown. Needs `url`."""
