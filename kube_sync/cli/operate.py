"""`kube-sync config`, `provision`, `certs` and `healthcheck`: what an operator runs beside it."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Final

from kube_sync.cli.installed import load
from kube_sync.cli.options import add_several, explain, note
from kube_sync.cli.runner import (
    ENVIRONMENT,
    FAILED,
    complain,
    printed,
    run_async,
    say,
    settings_of,
)
from kube_sync.errors import Misconfigured

CONFIG: Final = "print the effective configuration, secrets masked"
PROVISION: Final = "make missing Secrets of an installation, and renew old ones"
CERTS: Final = "make a certificate authority and a server certificate"
HEALTH: Final = "exit 0 if a readiness page says ready, or a webhook decides"

_PROVISION: Final = """\
Makes, in the namespace of the installation (coordination.namespace), certificates of an authority
of its own, tokens, what OPA knows of these, and the key that notes of what was asked for are sealed
with, each where it is missing. What it made itself it renews: certificates a month before they
end, tokens every 30 days, in steps half an hour apart at least, so that old and new are good at
once. The key of notes it never renews. Secrets of somebody else it uses and never changes. Called
again at once it changes nothing; call it every hour.
"""


_HEALTH: Final = """\
Without --url it asks the page at observe.listen, or else the port of whichever command answers
here. With --webhook it sends a review of a ReplicaSet that nobody stores: ready is a webhook that
gets a decision on it, to admit or to deny.
"""


def declare_config(command: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `config`."""
    command.add_argument(
        "--variables", action="store_true", help="list the environment variable of each field"
    )
    command.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help="what a key is for, as admission.engine, or without KEY each of them",
    )


def declare_provision(command: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `provision`."""
    explain(command, _PROVISION)
    command.add_argument(
        "--tokens-only",
        action="store_true",
        help="leave certificates to somebody else, as cert-manager",
    )


def declare_certs(command: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `certs`."""
    command.add_argument("--out", required=True, metavar="DIR", help="where the files go")
    what = "a DNS name or IP address that the certificate is for"
    add_several(command, "--host", metavar="NAME", help=what, required=True)


def declare_health(command: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `healthcheck`."""
    note(command, _HEALTH)
    command.add_argument(
        "--url",
        help="the page (default: the one of the command that runs here)",
    )
    command.add_argument(
        "--webhook", metavar="URL", help="ask this webhook instead, as the API server does"
    )
    command.add_argument("--ca-file", metavar="FILE", help="certificates that verify the webhook's")


def config(arguments: argparse.Namespace) -> int:
    """Print the configuration, its variables, or what a key is for."""
    from kube_sync.config import effective, explained, fields  # noqa: PLC0415 - slow

    if arguments.explain is not None:  # whatever the file says
        return printed(explained(arguments.explain or None))
    settings = load(arguments)
    if arguments.variables:
        return printed("\n".join(f"{field.variable:45} {field.path}" for field in fields()))
    return printed(effective(settings).rstrip("\n"))


def provision(arguments: argparse.Namespace) -> int:
    """Make and renew the Secrets of an installation."""
    settings = settings_of(arguments)
    from kube_sync.processes.provisioning import run_provision  # noqa: PLC0415 - slow

    done = run_async(run_provision(settings, tokens_only=arguments.tokens_only))
    return printed("\n".join(done) or "nothing to do")


def certs(arguments: argparse.Namespace) -> int:
    """Write certificates, and list their files."""
    from pathlib import Path  # noqa: PLC0415 - slow

    from kube_sync.certificates import write_certificates  # noqa: PLC0415 - slow, and only here

    try:
        written = write_certificates(Path(arguments.out), arguments.host)
    except OSError as error:
        complain(f"{error.filename or error}: {error.strerror or 'exists already'}")
        return FAILED
    except (TypeError, ValueError) as error:  # a host that is no name, or ca.key is no such key
        complain(f"no certificate for {', '.join(arguments.host)} in {arguments.out}: {error}")
        return FAILED
    for file in written:
        say(str(file))
    return 0


def health(arguments: argparse.Namespace) -> int:
    """Print a readiness page or a webhook's answer; the exit status tells whether it is good."""
    from kube_sync.observability import healthcheck  # noqa: PLC0415 - slow

    url: str | None = arguments.url
    if arguments.webhook:
        found = healthcheck.reviewed(arguments.webhook, arguments.ca_file)
    else:
        found = healthcheck.asked(url) if url else healthcheck.found(_pages(arguments.config))
    if found.good:
        say(found.said, end="")
        return 0
    complain(found.said)
    return FAILED


def _pages(file: str | None) -> list[str]:
    """Return where the command beside this one shows its readiness.

    A file that is wrong now says nothing of a process that began with a good one.
    """
    from kube_sync.config import Source, parse_listen, source_of  # noqa: PLC0415 - slow
    from kube_sync.observability import healthcheck  # noqa: PLC0415 - slow

    for source in (source_of(file, ENVIRONMENT), Source(None, ENVIRONMENT)):
        with suppress(Misconfigured):
            listen = source.load(source.read()).observe.listen
            if listen is not None:
                return [healthcheck.page(parse_listen("observe.listen", listen))]
    return healthcheck.usual_pages()
