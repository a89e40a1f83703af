"""The real servers for every test that asks for one, started once or fresh as the test needs.

Keeps true: containers wherever an engine can be had, and where not, the same fixtures start the
same versions as processes and the summary says so. Preparing (engine, images, programs) comes
before the first test, so that no test's time limit pays for a build. Tests may run side by side
(pytest-xdist, a file at a time): every worker has its own servers, on ports of its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.observability import logs
from tests.fakes.browser import browser
from tests.fakes.decided import MADE_UP, let_decide
from tools.servers.binaries import ensure_binary
from tools.servers.browser import ensure_browser
from tools.servers.console import say
from tools.servers.engine import ensure_engine
from tools.servers.errors import BrowserUnavailable, EngineUnavailable, ToolError
from tools.servers.images import ensure_image
from tools.servers.processes import RUNNING, ProcessLauncher, end_recorded
from tools.servers.project_image import IMAGE, ensure_project_image
from tools.servers.running import Launcher
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.spokes import RunningSpoke, running_spokes
from tools.servers.stack import RunningStack, furnished_stack
from tools.servers.thirdparty import ensure_kinds, third_parties
from tools.servers.versions import tools

pytest_plugins = ["tests.parts"]

ROOT = Path(__file__).resolve().parent.parent
SPOKES = ("spoke-1", "spoke-2")
REQUIRE_CONTAINERS = "KUBE_SYNC_REQUIRE_CONTAINERS"
_LAUNCHER = pytest.StashKey[Launcher]()
_NO_ENGINE = pytest.StashKey[str]()
_BROWSER = pytest.StashKey[str]()
_NO_BROWSER = pytest.StashKey[str]()
_STARTED_BY_WORKERS = pytest.StashKey[int]()
_WORKER_OUTPUT = "workeroutput"  # what pytest-xdist gives a worker's configuration
# What tests put into a namespace; a cluster without controllers never empties one by itself.
_LEFT_BEHIND = ("replicasets", "configmaps", "clusterprofiles", "events")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare the servers when a collected test asks for one."""
    config = session.config
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if "launcher" in asked and not config.option.collectonly:
        _prepare_all(config, with_project_image="project_image" in asked)
    if "chromium" in asked and not config.option.collectonly:
        _prepare_browser(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Prepare the servers where it can be watched; the workers, who collect, then find them."""
    if not all("unit" in Path(path).parts for path in config.args):
        _prepare_all(config, with_project_image=True)
        _prepare_browser(config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count what a worker started that has ended."""
    output = getattr(node, _WORKER_OUTPUT, {})  # a worker that crashed has none
    started = node.config.stash.get(_STARTED_BY_WORKERS, 0)
    node.config.stash[_STARTED_BY_WORKERS] = started + output.get("containers", 0)


def _prepare_all(config: pytest.Config, *, with_project_image: bool) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            config.stash[_LAUNCHER] = launcher = _prepare(config)
            if with_project_image and launcher.form == "containers":
                ensure_project_image()
        except ToolError as error:
            pytest.exit(f"the servers for the tests are not to be had: {error}", returncode=1)


def _prepare_browser(config: pytest.Config) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            config.stash[_BROWSER] = ensure_browser()
        except BrowserUnavailable as error:
            if os.environ.get(REQUIRE_CONTAINERS) == "1":
                pytest.exit(f"the browser for the tests is not to be had: {error}", returncode=1)
            config.stash[_NO_BROWSER] = str(error)
            say(f"NO BROWSER: {error}; the page is not tried")


def _prepare(config: pytest.Config) -> Launcher:
    for name in ("kubectl", "kustomize", "opa", "helm"):
        ensure_binary(name)
    for project in third_parties():
        ensure_kinds(project)
    try:
        ensure_engine()
    except EngineUnavailable as error:
        if os.environ.get(REQUIRE_CONTAINERS) == "1":
            raise
        config.stash[_NO_ENGINE] = str(error)
        say(f"NO CONTAINERS: {error}; the same servers run as processes")
        return _processes()
    return _containers()


def _containers() -> Launcher:
    from tools.servers.containers import ContainerLauncher, remove_leftovers  # noqa: PLC0415

    remove_leftovers()
    for name, tool in tools().items():
        if tool.image is not None:
            ensure_image(name)
    return ContainerLauncher()


def _processes() -> Launcher:
    for name in tools():
        ensure_binary(name)
    return ProcessLauncher()


def _containers_started(config: pytest.Config) -> int:
    own = len(getattr(config.stash.get(_LAUNCHER, None), "started", ()))
    return own + config.stash.get(_STARTED_BY_WORKERS, 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that had to use containers, asked for servers, and started none."""
    started = _containers_started(session.config)
    if (output := getattr(session.config, _WORKER_OUTPUT, None)) is not None:
        output["containers"] = started
        return
    required = os.environ.get(REQUIRE_CONTAINERS) == "1"
    asked = session.config.stash.get(_LAUNCHER, None) is not None
    if required and asked and not started:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, Any]:
    """Show, where a test fails, what the processes that run by then wrote last."""
    report = yield
    if report.failed:
        running = sorted(RUNNING, key=lambda server: str(server.spec.folder))
        title = "last lines of {0.name} in {0.folder}"
        report.sections += [(title.format(one.spec), one.logs()) for one in running]
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what the servers ran as, and whether there was a browser."""
    if reason := config.stash.get(_NO_BROWSER, None):
        terminalreporter.section("NO BROWSER: the page was not tried", red=True)
        terminalreporter.write_line(reason)
    if config.stash.get(_LAUNCHER, None) is None:
        return
    if reason := config.stash.get(_NO_ENGINE, None):
        terminalreporter.section("NO CONTAINERS: servers ran as processes", red=True)
        terminalreporter.write_line(reason)
    terminalreporter.write_line(f"containers started: {_containers_started(config)}")


@pytest.fixture(autouse=True)
def _logs_of_the_process_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command that a test runs in this process from setting up its logs, for good."""
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)


@pytest.fixture(scope="session")
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Start servers with this: as containers, or as processes where no engine can be had."""
    return request.config.stash[_LAUNCHER]


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """One browser for the module, by the address of its protocol; None where there is none."""
    if (program := request.config.stash.get(_BROWSER, None)) is None:
        yield None
        return
    with browser(program) as address:
        yield address


@pytest.fixture(scope="session")
def stack(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """One etcd, kube-apiserver and OPA for the session, with our kinds, roles and accounts."""
    end_recorded(tmp_path_factory.getbasetemp().parent, orphans_only=True)
    with furnished_stack(launcher, tmp_path_factory.mktemp("stack"), audit=True) as running:
        let_decide(running, *MADE_UP)
        yield running


@pytest.fixture(scope="session")
def gateway_api(stack: RunningStack) -> RunningStack:
    """The session's stack with the kinds of the Gateway API on it, experimental ones too."""
    stack.install_gateway_api()
    return stack


@pytest.fixture(scope="session")
def hub(stack: RunningStack) -> RunningStack:
    """The session's stack with the kinds of Open Cluster Management on it."""
    stack.install_open_cluster_management()
    return stack


@pytest.fixture(scope="session")
def spokes(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningSpoke, ...]]:
    """Two clusters for the session beside the stack, with the Gateway API and ColorPolicy."""
    with running_spokes(launcher, tmp_path_factory.mktemp("spokes"), SPOKES) as running:
        for spoke in running:
            spoke.install_gateway_api()
            spoke.install_kinds(ROOT / "manifests/examples/colorpolicy")
        yield running


@pytest.fixture(scope="session")
def project_image() -> str:
    """The project's own image, made of the present sources before the first test."""
    return IMAGE


@pytest.fixture
def opa(launcher: Launcher, tmp_path: Path) -> Iterator[RunningOpa]:
    """A fresh, empty OPA of the test's own, with TLS, tokens and authorization."""
    running = start_opa(launcher, tmp_path / "opa")
    yield running
    running.server.stop()


@pytest.fixture
def namespace(stack: RunningStack) -> Iterator[str]:
    """A new namespace, empty again after the test; policies may be put there too."""
    name = f"test-{secrets.token_hex(4)}"
    stack.api.create_namespace(name)
    yield name
    for resource in _LEFT_BEHIND:
        stack.api.delete_all(resource, name)
