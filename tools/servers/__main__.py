"""The command line of the tools: `python -m tools.servers --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.servers import argocd, kstatus, kueue, node_programs
from tools.servers import release_programs as release
from tools.servers.binaries import ensure_binary
from tools.servers.console import say
from tools.servers.errors import ToolError
from tools.servers.prometheus import PROGRAMS, ensure_prometheus
from tools.servers.thirdparty import ensure_kinds, third_parties
from tools.servers.versions import tools

# Programs that only who asks for them builds.
_UNASKED: Mapping[str, Callable[[], Path]] = {
    argocd.PROGRAM: argocd.ensure_argocd,
    kueue.PROGRAM: kueue.ensure_kueue,
    kstatus.PROGRAM: kstatus.ensure_kstatus,
    release.COSIGN: release.ensure_cosign,
    release.CRANE: release.ensure_crane,
    node_programs.PROGRAM: lambda: node_programs.ensure_node_programs()["kubelet"],
}
_ABOUT = """\
The pinned servers and programs that tests, checks, demo and compose run (versions: tools/go.mod).
Every command is idempotent: it does what is missing, says what it does, and resumes.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 when everything asked for is there."""
    chosen = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = chosen.run
    try:
        run(chosen)
    except ToolError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: the same command goes on from here")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tools.servers", description=_ABOUT, formatter_class=form)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_file_commands(commands)
    _add_engine_commands(commands)
    return parser


def _add_file_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    binaries = commands.add_parser(
        "binaries", help="have the programs as files (no Docker, no root)"
    )
    binaries.add_argument("name", nargs="*", help=f"some of: {', '.join(tools())} (default: all)")
    binaries.set_defaults(run=_binaries)
    kinds = commands.add_parser("kinds", help="have other projects' CRDs as files (needs Go)")
    kinds.add_argument("name", nargs="*", help=f"some of: {', '.join(third_parties())}")
    kinds.set_defaults(run=_kinds)
    path = commands.add_parser("path", help="print where one program's file is, getting it first")
    path.add_argument("name", choices=[*tools(), *PROGRAMS, *_UNASKED])
    path.set_defaults(run=lambda chosen: print(_program(chosen.name)))


def _add_engine_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    engine = commands.add_parser("engine", help="have a Docker engine that answers")
    engine.add_argument("--stop", action="store_true", help="end the engine that was started so")
    engine.set_defaults(run=_engine)
    with_image = [name for name, tool in tools().items() if tool.image]
    images = commands.add_parser("images", help="have the servers as images of the upstream names")
    images.add_argument("name", nargs="*", help=f"some of: {', '.join(with_image)} (default: all)")
    images.set_defaults(run=_images)
    project = commands.add_parser(
        "project-image", help="have the project's own image, kube-sync:dev"
    )
    project.set_defaults(run=_project_image)
    stack = commands.add_parser("compose", help="start or remove the docker-compose stack")
    stack.add_argument("action", choices=["up", "down"])
    stack.set_defaults(run=_compose)


def _binaries(chosen: argparse.Namespace) -> None:
    for name in chosen.name or tools():
        say(f"{name}: {ensure_binary(name)}")


def _program(name: str) -> Path:
    if name in _UNASKED:
        return _UNASKED[name]()
    return ensure_prometheus(name) if name in PROGRAMS else ensure_binary(name)


def _kinds(chosen: argparse.Namespace) -> None:
    for name in chosen.name or third_parties():
        say(f"{name}: {ensure_kinds(name)}")


# The rest needs the virtual environment (the Docker SDK), so it is imported only when asked for.


def _engine(chosen: argparse.Namespace) -> None:
    from tools.servers.engine import ensure_engine, stop_engine  # noqa: PLC0415

    (stop_engine if chosen.stop else ensure_engine)()


def _images(chosen: argparse.Namespace) -> None:
    from tools.servers.engine import ensure_engine  # noqa: PLC0415
    from tools.servers.images import ensure_image  # noqa: PLC0415

    ensure_engine()
    for name in chosen.name or [name for name, tool in tools().items() if tool.image]:
        say(f"{name}: {ensure_image(name)}")


def _project_image(_: argparse.Namespace) -> None:
    from tools.servers.engine import ensure_engine  # noqa: PLC0415
    from tools.servers.project_image import ensure_project_image  # noqa: PLC0415

    ensure_engine()
    say(f"project: {ensure_project_image()}")


def _compose(chosen: argparse.Namespace) -> None:
    from tools.servers.compose import HOST, down, prometheus, up  # noqa: PLC0415

    if chosen.action == "down":
        down()
        return
    stack = up()
    say(f"API server: {stack.apiserver_url}, kubeconfig {HOST / 'admin.kubeconfig'}")
    say(f"OPA: {stack.opa_url}, token and CA in {HOST / 'opa'}")
    say(f"Prometheus: {prometheus().url}")


if __name__ == "__main__":
    sys.exit(main())
