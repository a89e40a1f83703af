from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from kube_sync import __version__, cli
from kube_sync.admission.metadata import check as metadata_check
from kube_sync.admission.scheduling import check
from kube_sync.cli import main, runner
from kube_sync.config import CONFIG_ENV, Settings, Source, fields, load_settings
from kube_sync.decisions import command as stream_command
from kube_sync.errors import Conflict, Misconfigured, Retriable, Undecided
from kube_sync.inspect.survey import command
from kube_sync.ledger import command as ledger_command
from kube_sync.observability import healthcheck, logs
from kube_sync.opa.packs import all_packs
from kube_sync.processes import approving, commands
from kube_sync.processes import provisioning as app_provisioning
from kube_sync.processes import staging as app_staging


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in fields():
        monkeypatch.delenv(field.variable, raising=False)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    # The logs of this process belong to pytest.
    monkeypatch.setattr(logs, "configure_logs", lambda _level: None)


class Run:
    """One command in this process: its exit status and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        self.status = exited.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def complaint(self) -> str:
        """The only line on standard error."""
        (line,) = self.err.splitlines()
        return line


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


TITLES = ["Servers:", "Look:", "Write a policy:", "Operate:"]
COMMANDS = [name for group in cli.COMMANDS.values() for name in group]


def test_help_lists_each_command_once_in_groups_and_tells_where_the_configuration_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Run(capsys, "--help")
    assert run.status == 0
    assert "Open Policy Agent (OPA)" in run.out
    lines = run.out.splitlines()
    assert [line for line in lines if line.endswith(":") and line in TITLES] == TITLES
    listed = [found for line in lines if (found := re.match(r"  ([a-z-]+) +(\S.*)", line))]
    assert [found[1] for found in listed if found[1] in COMMANDS] == COMMANDS
    assert max(len(found[2]) for found in listed) <= 70
    assert run.out.count("healthcheck") == 1
    assert "--config" in run.out
    assert CONFIG_ENV in run.out


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys)
    assert (run.status, run.err) == (0, "")
    assert run.out == Run(capsys, "--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run = Run(capsys, command, "--help")
    assert run.status == 0
    assert f"kube-sync {command}" in run.out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, "--version").out == f"kube-sync {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["dance"], ["config", "--loud"], ["certs"], ["analyze"], ["analyze", "/gone"]]
)
def test_a_wrong_command_line_exits_with_64(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    run = Run(capsys, *arguments)
    assert run.status == 64
    assert run.out == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["wyh"], 'unknown command "wyh"; did you mean why? (see `kube-sync --help`)'),
        (["get"], 'unknown command "get" (see `kube-sync --help`)'),
        (["config", "--loud"], "unrecognized arguments: --loud (see `kube-sync config --help`)"),
        (["why"], "the following arguments are required: NAME (see `kube-sync why --help`)"),
        (
            ["remediate", "approve"],
            "the following arguments are required: NAME (see `kube-sync remediate approve --help`)",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_that_names_the_help(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    run = Run(capsys, *arguments)
    assert (run.status, run.out, run.complaint) == (64, "", f"kube-sync: {complaint}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "{}", "config"],
        ["--config={}", "config"],
        ["--context", "config", "--config", "{}", "config"],
        ["config", "--config", "{}"],
    ],
)
def test_options_come_before_or_after_the_command(
    capsys: pytest.CaptureFixture[str], config: Path, arguments: list[str]
) -> None:
    config.write_text("placement: {path: own}")
    run = Run(capsys, *(word.format(config) for word in arguments))
    assert (run.status, run.err) == (0, "")
    assert yaml.safe_load(run.out)["placement"]["path"] == "own"


@pytest.mark.parametrize(
    "words", [["-n", "shop", "remediate", "status"], ["-l", "app=web", "decisions"]]
)
def test_options_before_the_command_are_those_of_its_last_word(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """`remediate` has no `-n`, `remediate status` has one."""
    run = Run(capsys, *words, "--frob")
    assert run.status == 64
    assert run.complaint.startswith("kube-sync: unrecognized arguments: --frob (see")


def test_help_of_a_command_is_that_of_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, "help", "why").out == Run(capsys, "why", "--help").out
    assert Run(capsys, "help").out == Run(capsys, "--help").out


def test_config_prints_what_loads_to_the_same(
    capsys: pytest.CaptureFixture[str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("remediate: {mode: off}")
    monkeypatch.setenv("KUBE_SYNC_OPA_URL", "http://opa:1")
    run = Run(capsys, "config", "--config", str(config))
    assert (run.status, run.err) == (0, "")
    config.write_text(run.out)
    settings = load_settings(str(config), {})
    assert (settings.remediate.mode, settings.opa.url) == ("off", "http://opa:1")


def test_config_masks_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_OPA_URL", "http://me:secret@opa:1")
    run = Run(capsys, "config")
    assert yaml.safe_load(run.out)["opa"]["url"] == "http://***@opa:1"


def test_config_lists_the_variable_of_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "config", "--variables")
    assert [tuple(line.split()) for line in run.out.splitlines()] == [
        (field.variable, field.path) for field in fields()
    ]


def test_config_explains_a_key_whatever_the_file_says(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    config.write_text("remediate: {mode: dance}")
    run = Run(capsys, "config", "--config", str(config), "--explain", "admission.engine.url")
    assert run.status == 0
    assert run.out.startswith("admission.engine.url: http or https URL, or null\n")
    assert "variable: KUBE_SYNC_ADMISSION_ENGINE_URL\n" in run.out


def test_config_explains_every_key_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "config", "--explain")
    assert run.status == 0
    for field in fields():
        assert f"  variable: {field.variable}\n" in run.out


def test_a_wrong_key_to_explain_is_a_complaint_that_names_near_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Run(capsys, "config", "--explain", "opa.token")
    assert run.status == 64
    assert run.complaint.startswith(
        "kube-sync: opa.token: unknown key; similar keys: opa.token_file"
    )


@pytest.mark.parametrize(
    "command", ["config", "replicate", "remediate", "admit", "run", "decisions"]
)
def test_a_mistake_in_the_configuration_is_one_line_and_64(
    capsys: pytest.CaptureFixture[str], config: Path, command: str
) -> None:
    config.write_text("opa: {urll: x}")
    run = Run(capsys, command, "--config", str(config))
    assert (run.status, run.out) == (64, "")
    assert run.complaint == f"kube-sync: opa.urll: unknown key (in {config})"


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("replicate", "run_replicate"),
        ("remediate", "run_remediate"),
        ("admit", "run_admit"),
        ("run", "run_all"),
    ],
)
def test_a_service_runs_with_the_settings_and_ends_with_0(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    config: Path,
    command: str,
    function: str,
) -> None:
    ran: list[Settings] = []

    async def run(settings: Settings, source: Source | None = None) -> None:
        assert source is None or source.file == str(config)
        ran.append(settings)

    monkeypatch.setattr(commands, function, run)
    config.write_text("policies: {static: true}")
    assert Run(capsys, command, "--config", str(config)).status == 0
    assert [settings.policies.static for settings in ran] == [True]
    labels = {"version": __version__, "command": command}
    assert REGISTRY.get_sample_value("kube_sync_build_info", labels) == 1


@pytest.mark.parametrize("before", [True, False])
def test_a_person_approves_with_the_settings_wherever_they_are_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    config: Path,
    *,
    before: bool,
) -> None:
    async def approve(settings: Settings, names: list[str]) -> str:
        return f"{names} {settings.policies.static}"

    monkeypatch.setattr(approving, "run_approve", approve)
    config.write_text("policies: {static: true}")
    words, file = ["approve", "moves-1"], ["--config", str(config)]
    run = Run(capsys, "remediate", *(file + words if before else words + file))
    assert (run.status, run.out) == (0, "['moves-1'] True\n")


def test_a_remediator_that_is_away_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "remediate", "status", "--url", "http://127.0.0.1:1")
    assert (run.status, run.out) == (1, "")
    url = "http://127.0.0.1:1/v1/remediation/status"
    assert run.complaint == f"kube-sync: {url}: Connection refused"


def test_a_mistake_in_what_is_asked_of_a_remediator_is_64(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    config.write_text("remediate: {token_file: /nowhere}")
    run = Run(capsys, "remediate", "status", "--config", str(config))
    assert run.status == 64
    assert "/nowhere" in run.complaint


def test_ctrl_c_while_modules_are_imported_ends_without_a_word() -> None:
    interrupted = """
import os, signal, sys
from kube_sync.__main__ import kubectl_plugin

class Interrupting:
    def find_spec(self, name, *_):
        if name == "kube_sync.cli.plan":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
kubectl_plugin()
"""
    finished = subprocess.run(
        [sys.executable, "-c", interrupted],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (-signal.SIGINT, "", "")


def test_a_mistake_found_while_running_is_one_line_and_64(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token file that goes raises in a task group of a task group."""

    async def run(_settings: Settings, source: Source) -> None:
        assert source.file is None
        inner = ExceptionGroup("inner", [Misconfigured("token file /t: empty")])
        msg = "outer"
        raise ExceptionGroup(msg, [Retriable("opa: no answer in time"), inner])

    monkeypatch.setattr(commands, "run_all", run)
    finished = Run(capsys, "run")
    assert finished.status == 64
    assert finished.complaint == "kube-sync: token file /t: empty"


def test_an_unexpected_failure_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_settings: Settings, source: Source) -> None:
        assert source.file is None
        msg = "a bug"
        raise RuntimeError(msg)

    monkeypatch.setattr(commands, "run_all", run)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["run"])


def test_a_kubeconfig_that_is_missing_is_one_line_and_64_of_the_real_program(
    tmp_path: Path,
) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "kube_sync", "remediate"],
        env={
            "KUBE_SYNC_KUBERNETES_KUBECONFIG": str(tmp_path / "gone"),
            "KUBE_SYNC_OBSERVE_LISTEN": "127.0.0.1:0",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (64, "")
    *_, line = finished.stderr.splitlines()
    assert line.startswith("kube-sync: kubernetes.kubeconfig: ")
    assert str(tmp_path / "gone") in line
    assert "Traceback" not in finished.stderr


def test_analyze_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "analyze", "--help")
    assert run.out.count("\n  kube-sync analyze ") == 2
    assert "exit status: 0; 1 if --max-whole" in run.out


def test_scheduling_check_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "scheduling", "check", "--help")
    assert (run.status, run.out.count("| kube-sync scheduling check ")) == (0, 1)
    assert run.out.count("\n  kube-sync scheduling check ") == 3


def test_metadata_check_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "metadata", "check", "--help")
    assert (run.status, run.out.count("| kube-sync metadata check ")) == (0, 1)
    assert run.out.count("\n  kube-sync metadata check ") == 2


def test_metadata_check_that_cannot_say_is_neither_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def undecided(*_: object) -> None:
        reason = "no decision"
        raise Undecided(reason)

    monkeypatch.setattr(metadata_check, "run", undecided)
    run = Run(capsys, "metadata", "check", "-f", "pod.yaml")
    assert (run.status, run.out, run.complaint) == (2, "", "kube-sync: no decision")


def test_scheduling_check_that_is_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupted)
    run = Run(capsys, "scheduling", "check", "-f", "pod.yaml")
    assert (run.status, run.out, run.err) == (130, "", "")


def test_scheduling_check_that_cannot_say_is_neither_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def undecided(*_: object) -> None:
        reason = "no decision"
        raise Undecided(reason)

    monkeypatch.setattr(check, "run", undecided)
    run = Run(capsys, "scheduling", "check", "-f", "pod.yaml")
    assert (run.status, run.out, run.complaint) == (2, "", "kube-sync: no decision")


def test_analyze_that_is_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    run = Run(capsys, "analyze", "--live")
    assert (run.status, run.out, run.err) == (130, "", "")


def test_analyze_names_the_server_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_SYNC_OPA_URL", "http://127.0.0.1:1")
    run = Run(capsys, "analyze", "--live")
    assert (run.status, run.out) == (1, "")
    assert run.complaint.startswith("kube-sync: OPA http://127.0.0.1:1: ")


def test_decisions_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "decisions", "--help")
    assert run.out.count("\n  kube-sync decisions ") == 5
    assert "exit status: 0; 1 if the replicator does not answer" in run.out


def test_decisions_names_the_replicator_that_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Run(capsys, "decisions", "--url", "http://127.0.0.1:1")
    assert (run.status, run.out) == (1, "")
    assert run.complaint.startswith(
        "kube-sync: decision stream http://127.0.0.1:1/v1/decisions: Cannot connect"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "nowhere"], '--url: "nowhere" is not an http or https URL'),
        (["--url", "https://r", "--ca-file", "/gone"], "/gone: No such file or directory"),
    ],
)
def test_decisions_with_a_wrong_argument_is_one_line_and_64(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    run = Run(capsys, "decisions", *arguments)
    assert (run.status, run.out) == (64, "")
    assert complaint in run.complaint


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 0), (None, 0)]
)
def test_decisions_that_a_person_ends_says_nothing(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    status: int,
) -> None:
    async def run(
        _request: object, _settings: object, say: Callable[[str], None], _: object
    ) -> None:
        say("a line")
        if error is not None:
            raise error

    monkeypatch.setattr(stream_command, "run", run)
    monkeypatch.setattr(runner, "_stop_printing", lambda: None)
    finished = Run(capsys, "decisions", "--watch")
    assert (finished.status, finished.out, finished.err) == (status, "a line\n", "")


@pytest.mark.parametrize(
    ("module", "function", "words"),
    [
        (approving, "run_approve", ["remediate", "approve", "moves-1"]),
        (approving, "run_approve_removals", ["policy-sync", "approve", "moves-1"]),
        (app_staging, "run_stage", ["stage", "web", "active", "--yes"]),
        (app_provisioning, "run_provision", ["provision"]),
    ],
)
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (Conflict("changed\nsince"), 1, "kube-sync: changed\nkube-sync: since\n"),
    ],
)
def test_what_ends_a_command_is_a_status_and_never_a_traceback(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    function: str,
    words: list[str],
    error: BaseException,
    status: int,
    said: str,
) -> None:
    async def ended(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, function, ended)
    run = Run(capsys, *words)
    assert (run.status, run.out, run.err) == (status, "", said)


@pytest.mark.parametrize(
    ("words", "module", "status"),
    [
        (["config", "--variables"], runner, 0),
        (["verify", "--offline", "--file", "ledger"], runner, 1),
    ],
)
def test_who_reads_part_of_an_answer_hears_of_no_error_and_learns_the_status(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    module: ModuleType,
    status: int,
) -> None:
    def say(_line: str, **_: object) -> None:
        raise BrokenPipeError

    def differs(*arguments: Any, required: bool) -> bool:
        _, _, say_on, _ = arguments
        say_on("row 3 differs")
        return required

    stopped: list[bool] = []
    monkeypatch.setattr(ledger_command, "check", differs)
    monkeypatch.setattr(module, "say", say)
    monkeypatch.setattr(runner, "_stop_printing", lambda: stopped.append(True))
    run = Run(capsys, *words)
    assert (run.status, run.err, stopped) == (status, "", [True])


def test_certs_writes_and_lists_its_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, "certs", "--out", str(tmp_path), "--host", "localhost", "--host", "::1")
    assert run.status == 0
    assert run.out.splitlines() == [
        str(tmp_path / name) for name in ("ca.key", "ca.crt", "tls.key", "tls.crt")
    ]


def test_certs_refuses_to_overwrite_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Run(capsys, "certs", "--out", str(tmp_path), "--host", "localhost")
    run = Run(capsys, "certs", "--out", str(tmp_path), "--host", "localhost")
    assert run.status == 1
    assert run.complaint == f"kube-sync: {tmp_path / 'tls.crt'}: exists already"


def test_policy_lists_packs_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "policy", "list")
    lines = dict(line.split(maxsplit=1) for line in run.out.splitlines())
    assert lines.keys() == all_packs().keys()
    assert lines["cost-ceilings"].startswith("Workloads run on clusters that cost no more")


def test_policy_writes_a_pack_and_names_the_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, "policy", "init", "cost-ceilings", str(tmp_path))
    assert run.status == 0
    files = run.out.splitlines()
    assert str(tmp_path / "cost-ceilings/cost_ceilings.rego") in files
    assert str(tmp_path / "placement/composition.rego") in files
    again = Run(capsys, "policy", "init", "cost-ceilings", str(tmp_path))
    assert again.status == 64
    assert again.complaint.endswith("exists already, and nothing is overwritten")


def test_certs_names_a_folder_that_cannot_be_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    run = Run(capsys, "certs", "--out", str(tmp_path / "file/x"), "--host", "localhost")
    assert run.status == 1
    assert run.complaint.endswith("Not a directory")


def test_certs_names_a_host_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, "certs", "--out", str(tmp_path), "--host", "bücher.example")
    assert run.status == 1
    assert run.complaint.startswith("kube-sync: no certificate for bücher.example in ")


def test_certs_names_an_authority_that_cannot_sign(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "ca.key").write_text("garbage")
    (tmp_path / "ca.crt").write_text("garbage")
    run = Run(capsys, "certs", "--out", str(tmp_path), "--host", "localhost")
    assert run.status == 1
    assert str(tmp_path) in run.complaint


class _Readiness(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = {
            "/ready": (200, "opa: ok\nready\n"),
            "/readyz": (200, "opa: ok\nready\n"),
            "/not-ready": (503, "opa: away\nnot ready\n"),
        }.get(self.path, (500, ""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Readiness) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_healthcheck_of_a_ready_process_is_0_and_prints_the_page(
    capsys: pytest.CaptureFixture[str], page: str
) -> None:
    run = Run(capsys, "healthcheck", "--url", page + "/ready")
    assert (run.status, run.out, run.err) == (0, "opa: ok\nready\n", "")


def test_healthcheck_of_a_process_that_is_not_ready_is_1_and_tells_why(
    capsys: pytest.CaptureFixture[str], page: str
) -> None:
    run = Run(capsys, "healthcheck", "--url", page + "/not-ready")
    assert (run.status, run.out) == (1, "")
    assert run.err == "kube-sync: opa: away\nnot ready\n"


def test_healthcheck_of_a_page_without_a_word_names_the_page(
    capsys: pytest.CaptureFixture[str], page: str
) -> None:
    run = Run(capsys, "healthcheck", "--url", page + "/broken")
    assert run.status == 1
    assert run.complaint.startswith(f"kube-sync: {page}/broken: HTTP Error 500")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/readyz", "nonsense", "http://[::1", "http://a b/"]
)
def test_healthcheck_of_nobody_is_1_in_one_line(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    run = Run(capsys, "healthcheck", "--url", url)
    assert run.status == 1
    assert run.complaint.startswith(f"kube-sync: {url}: ")


def test_healthcheck_does_not_ask_through_a_proxy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """Docker hands its proxy settings to containers, and the page is on 127.0.0.1 of each."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert Run(capsys, "healthcheck", "--url", page + "/ready").status == 0


def test_healthcheck_asks_where_the_command_was_told_to_show_its_readiness(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, page: str, config: Path
) -> None:
    monkeypatch.setenv("KUBE_SYNC_OBSERVE_LISTEN", f"0.0.0.0:{page.rpartition(':')[2]}")
    assert Run(capsys, "healthcheck").status == 0
    config.write_text("nonsense: 1")
    assert Run(capsys, "healthcheck", "--config", str(config)).status == 0
    monkeypatch.delenv("KUBE_SYNC_OBSERVE_LISTEN")
    config.write_text(yaml.safe_dump({"observe": {"listen": page.removeprefix("http://")}}))
    assert Run(capsys, "healthcheck", "--config", str(config)).status == 0


def test_healthcheck_without_an_address_finds_the_port_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    usual = ["http://127.0.0.1:1/readyz", f"{page}/readyz"]
    monkeypatch.setattr(healthcheck, "usual_pages", lambda: usual)
    assert Run(capsys, "healthcheck").status == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_word_that_is_misspelt_is_64_whatever_the_command(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run = Run(capsys, command, "--bogus")
    assert (run.status, run.out) == (64, "")


def test_page_of_exit_statuses_has_every_command_once() -> None:
    page = Path(__file__).parents[3].joinpath("docs/commands.md").read_text(encoding="utf-8")
    table = page.split("## Exit statuses")[1]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(rows))) == sorted(COMMANDS)
