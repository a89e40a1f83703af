"""The command line of the demos: `python -m tools.demo up`, `… policy-sync`, `… kueue`, `… down`.

`… start` is the stack without a story, for whoever wants to try things on it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from tools.demo.argocd import argo_cd_follows, prepare
from tools.demo.components import LABELLED, TOLD, TRIED, WATCHED, start_components
from tools.demo.installation import show_installation
from tools.demo.jobs.estate import start_estate
from tools.demo.jobs.story import World as JobsWorld
from tools.demo.jobs.story import tell as tell_of_jobs
from tools.demo.narrator import Differs, Narrator
from tools.demo.shell import write_shell
from tools.demo.story import tell
from tools.demo.sync.estate import HUB, Estate, start_clusters, start_services
from tools.demo.sync.story import tell as tell_of_sync
from tools.demo.sync.world import World as SyncWorld
from tools.demo.webhook import register_webhook
from tools.demo.world import World
from tools.servers import compose
from tools.servers.argocd import ensure_argocd
from tools.servers.console import say, step
from tools.servers.engine import stop_idle_engine
from tools.servers.errors import ToolError
from tools.servers.kueue import ensure_kueue
from tools.servers.processes import ProcessLauncher
from tools.servers.stack import RunningStack, start_stack, stop_recorded

ROOT = Path(__file__).resolve().parents[2]
# Another folder lets a second stack run beside a person's own.
RUN = Path(os.environ.get("KUBE_SYNC_RUN", ROOT / ".run")).absolute()
FOLDER = RUN / "demo"
SYNC_FOLDER = RUN / "demo-policy-sync"
JOBS_FOLDER = RUN / "demo-kueue"
_COMPOSE_WEBHOOK = "https://admission:8443/admit/placement"


def main() -> int:
    """Run one command; 0 when every step of the story was as expected."""
    parser = argparse.ArgumentParser("tools.demo", description=__doc__)
    parser.add_argument("command", choices=["up", "start", "policy-sync", "kueue", "down"])
    parser.add_argument(
        "--stack",
        choices=["processes", "compose"],
        default="processes",
        help="what the servers run as (default: %(default)s)",
    )
    parser.add_argument(
        "--with",
        dest="argocd",
        choices=["argocd"],
        help="put another project's controller beside it, built first (processes only)",
    )
    arguments = parser.parse_args()
    if arguments.argocd and arguments.stack != "processes":
        parser.error("--with argocd: only with --stack processes")
    try:
        return _run(arguments)
    except ToolError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: `make down` removes what is left")
        return 130


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "down":
            _down()
        case "start":
            _start(arguments.stack, argocd=bool(arguments.argocd))
        case "kueue":
            return _kueue()
        case "policy-sync":
            return _sync()
        case _:
            return _up(arguments.stack, argocd=bool(arguments.argocd))
    return 0


def _up(form: str, *, argocd: bool) -> int:
    started = time.monotonic()
    if form == "compose":
        compose.down()
    stack, shell = _compose() if form == "compose" else _processes(TOLD, argocd=argocd)

    def story(narrator: Narrator) -> None:
        world = World(stack, _stream(shell))
        tell(world, narrator)
        if argocd:
            argo_cd_follows(world, narrator)

    try:
        return _told(started, story)
    finally:
        _where_to_look(stack, shell)


def _start(form: str, *, argocd: bool) -> None:
    tried = WATCHED if argocd else TRIED
    _, shell = _compose() if form == "compose" else _processes(tried, argocd=argocd)
    say(f"\n{_page(shell)}")
    say(f"\nThe stack goes on running; `make down` removes it.\n{_for_a_shell(shell)}")


def _for_a_shell(shell: Path) -> str:
    return f"For kubectl, opa and kube-sync on it, in your shell:\n  . {_seen_from_here(shell)}"


def _page(shell: Path) -> str:
    """Return where the page to look at is, and who may see what it shows."""
    stream = _stream(shell)
    token = _seen_from_here(Path(stream["token_file"]))
    return (
        f"A page to look at: {stream['url'].partition('/v1/')[0]}/ui\n"
        f"  (its certificate is of this stack's own authority; it asks for the token in {token})"
    )


def _stream(shell: Path) -> dict[str, str]:
    """Return the section `decisions` of a person's configuration."""
    config = yaml.safe_load((shell.parent / "config.yaml").read_text(encoding="utf-8"))
    stream: dict[str, str] = config["decisions"]
    return stream


def _seen_from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _told(started: float, story: Callable[[Narrator], None]) -> int:
    narrator = Narrator(sys.stdout)
    try:
        story(narrator)
    except Differs as error:
        say(f"\nDIFFERS: {error}")
        return 1
    say(f"\nAll {narrator.told} steps were as expected; {time.monotonic() - started:.0f} s in all.")
    return 0


def _sync() -> int:
    started, estate = time.monotonic(), Estate()
    _end_earlier(SYNC_FOLDER)
    try:
        with step("starting a hub and two spokes: etcd and kube-apiserver each"):
            start_clusters(estate, ProcessLauncher(), SYNC_FOLDER)
        with step("starting the hub's policy sync, and agents and topologies of the spokes"):
            start_services(estate, SYNC_FOLDER)
    except BaseException:
        estate.stop()
        raise
    try:
        return _told(started, lambda narrator: tell_of_sync(SyncWorld(estate), narrator))
    finally:
        say("\nHub and spokes go on running; `make down` removes them.")
        for name, cluster in estate.clusters.items():
            kinds = "colorpolicies,manifestworks" if name == HUB else "colorpolicies"
            say(f"  kubectl --kubeconfig {cluster.kubeconfig} get {kinds} -A -o yaml")
        say(f"  logs and configuration: {SYNC_FOLDER}")


def _kueue() -> int:
    started = time.monotonic()
    _end_earlier(JOBS_FOLDER)
    ensure_kueue()
    with step("starting four API servers, four managers of Kueue, OPA, replicator and remediator"):
        estate = start_estate(ProcessLauncher(), JOBS_FOLDER)
    manager = estate.clusters.manager
    shell = write_shell(
        JOBS_FOLDER,
        manager.kubeconfigs["admin"],
        {
            "decisions": manager.endpoint.client(),
            "ledger": {"path": str(JOBS_FOLDER / "ledger.db")},
        },
    )
    try:
        return _told(started, lambda narrator: tell_of_jobs(JobsWorld(estate), narrator))
    finally:
        say(f"\nThe clusters go on running; `make down` removes them.\n{_for_a_shell(shell)}")


def _processes(
    remediate: Mapping[str, object], *, argocd: bool = False
) -> tuple[RunningStack, Path]:
    """Start the stack as processes; returns it, and what a shell sources to work with it."""
    _end_earlier(FOLDER)
    if argocd:
        ensure_argocd()
    with step("starting etcd, kube-apiserver and OPA (seconds, once they are built)"):
        stack = start_stack(ProcessLauncher(), FOLDER / "stack")
        stack.furnish()
        stack.apply(ROOT / "manifests/placement-decisions")
    parts = prepare(stack, FOLDER / "argocd") if argocd else None
    with step("starting replicator, remediator and webhook (seconds)"):
        components = start_components(
            stack,
            FOLDER / "components",
            {**remediate, **(parts.remediate if parts else {})},
            classes="on",
            shared={**LABELLED, **(parts.shared if parts else {})},
        )
        register_webhook(stack, components.webhook_url, components.webhook_ca)
        show_installation(stack, FOLDER / "kubelet", components, remediate)
    if parts:
        with step("starting Argo CD's ApplicationSet controller (seconds)"):
            parts.start()
    servers = {"opa": stack.opa_settings(), "decisions": stack.endpoint.client()}
    admin = stack.kubeconfigs["admin"]
    return stack, write_shell(FOLDER, admin, {**servers, **components.client, **LABELLED})


def _compose() -> tuple[RunningStack, Path]:
    """Start the stack in containers, likewise; one that is up stays as it is."""
    stack = compose.up()
    register_webhook(stack, _COMPOSE_WEBHOOK, (compose.HOST / "ca.crt").read_bytes())
    settings, beside = compose.client_settings(), compose.inside("replicator")
    return stack, write_shell(compose.HOST, stack.kubeconfigs["admin"], settings, beside)


def _down() -> None:
    for folder in (FOLDER, SYNC_FOLDER, JOBS_FOLDER):
        _end_earlier(folder)
    compose.down()
    stop_idle_engine()


def _end_earlier(folder: Path) -> None:
    if ended := stop_recorded(folder):
        say(f"ended {ended} processes of an earlier stack")


def _where_to_look(stack: RunningStack, shell: Path) -> None:
    say(f"\n{_page(shell)}")
    say(
        f"\nThe stack goes on running; `make down` removes it.\n{_for_a_shell(shell)}\n"
        f"  kubectl --kubeconfig {stack.kubeconfigs['admin']} get replicasets -n shop -o yaml\n"
        f'  curl --cacert {stack.opa_ca_file} -H "Authorization: Bearer $(cat '
        f'{stack.opa_token_files["replicator"]})" {stack.opa_url}/v1/data/kubernetes/clusters\n'
        f"  logs and configuration: {stack.folder.parent}"
    )


if __name__ == "__main__":
    sys.exit(main())
