"""The demo's own steps, on servers as containers: what the README promises, from the outside.

And what is to be seen on that stack afterwards: the page, in a browser, and the ledger.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.browser import Page, tab
from tools.demo.components import TOLD, start_components
from tools.demo.narrator import Differs, Narrator
from tools.demo.shell import write_shell
from tools.demo.story import tell
from tools.demo.webhook import register_webhook
from tools.demo.world import World
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

pytestmark = pytest.mark.timeout(300)  # the first test is told the whole story

WORKLOADS = ("nginx-anywhere", "nginx-early", "nginx-eu", "nginx-pci")
VIEWS = ("board", "changes", "held", "health")
# What the page and the commands say where a part of the stack cannot be asked, or is not set.
UNKNOWN = ("not known", "does not answer", "asking …", "OPA is asked why")


@dataclass
class Told:
    """The stack after the story, and who told it."""

    steps: int
    page: str  # its address, with the token
    shell: Path  # what a person sources


@pytest.fixture(scope="module")
def told(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Tell the story on a stack of its own: it begins on an empty one, and kills its OPA."""
    folder = tmp_path_factory.mktemp("demo")
    with furnished_stack(launcher, folder / "stack") as stack:
        components = start_components(stack, folder / "components", TOLD, classes="on")
        heard = io.StringIO()
        narrator = Narrator(heard)
        try:
            register_webhook(stack, components.webhook_url, components.webhook_ca)
            stream = stack.endpoint.client()
            tell(World(stack, stream), narrator)
            servers = {"opa": stack.opa_settings(), "decisions": stream}
            settings = {**servers, **components.client}
            token = stack.endpoint.token_file.read_text(encoding="utf-8").strip()
            yield Told(
                narrator.told,
                f"{stack.endpoint.url}/ui#token={token}",
                write_shell(folder, stack.kubeconfigs["admin"], settings),
            )
        except Differs as error:
            pytest.fail(f"{error}\n{heard.getvalue()}")
        finally:
            components.stop()


def test_every_step_of_the_story_is_seen_as_expected(told: Told) -> None:
    assert told.steps == 19


async def test_every_view_of_the_page_is_shown_without_an_error(
    told: Told, chromium: str | None
) -> None:
    if chromium is None:  # tests/conftest.py ends the run where containers are required, as in CI
        pytest.skip("there is no browser")
    async with tab(chromium) as page:
        await page.open(told.page)
        await page.until('document.getElementById("state")?.dataset.state === "live"')
        for number, view in enumerate(VIEWS, start=1):
            await page.press(str(number))
            await _shown(page, view)
        await page.press("1")
        for name in WORKLOADS:
            await page.press("/")
            await page.type(name)
            await page.until(f"{_ROWS}.join() === {json.dumps(f'shop/{name}')}")
            await page.press("Enter", "Enter")  # to its row, and into its story
            await page.until(f'{_text("panel-title")}.includes("{name}")')
            await page.until(f'{_text("panel")}.includes("Pending moves".toUpperCase())')
            await _shown(page, "panel")
            await page.press("Escape", "/", "Escape", "Escape")  # to an empty search, and back
        assert page.troubles == []
        assert page.failed == []


async def _shown(page: Page, element: str) -> None:
    """Wait until a part of the page knows all that it shows. Raises AssertionError."""
    text = f"{_text(element)}.toLowerCase()"
    unknown = json.dumps([one.lower() for one in UNKNOWN])
    await page.until(f"{text}.length > 20 && !{unknown}.some((one) => {text}.includes(one))")


def _text(element: str) -> str:
    return f'document.getElementById("{element}").innerText'


_ROWS = (
    '[...document.querySelectorAll("#names .name:not([hidden])")]'
    '.map((name) => name.querySelector("span").textContent)'
)


@pytest.mark.parametrize(
    ("command", "expected", "statuses"),
    [
        ("kube-sync history replicaset/nginx-eu -n shop --since 1h", "nginx-eu", (0,)),
        ("kube-sync why replicaset/nginx-eu -n shop --at 0s", "gce-europe-west1", (0,)),
        ("kube-sync verify --require-head", "each is what was written", (0,)),
        ("kube-sync replay --since 1h", "the same", (0, 3)),  # 3: OPA was killed amid decisions
        ("kube-sync remediate status", "nothing waits", (0,)),
    ],
)
def test_command_that_the_shell_offers_knows_what_happened(
    told: Told, command: str, expected: str, statuses: tuple[int, ...]
) -> None:
    ran = subprocess.run(
        ["/bin/bash", "-euc", f". {told.shell}; {command}"],
        env={name: value for name, value in os.environ.items() if not name.startswith("KUBE")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in ran.stdout, ran.stderr
    assert ran.returncode in statuses, ran.stderr
