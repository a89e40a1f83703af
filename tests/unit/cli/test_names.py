"""Every command takes names in the same forms."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.cli import names
from kube_sync.config import CONFIG_ENV, Settings
from kube_sync.decisions import command as decisions
from kube_sync.inspect.plan import command as plans
from kube_sync.inspect.why import command as why
from kube_sync.kube import client as clients
from kube_sync.kube import discovery
from kube_sync.kube.naming import Reference
from kube_sync.ledger import command as ledger
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policykinds.printing import Answer
from tests.unit.commandline import status

WEB = GroupVersionResource("apps", "v1", "replicasets"), ObjectKey("shop", "web")
FORMS = [
    "rs web -n shop",
    "rs -n shop web",
    "-n shop replicasets.apps web",
    "replicaset shop/web",
    "rs/web -n shop",
    "ReplicaSet.apps/web -n shop",
    "replicasets.v1.apps/web -n shop",
    "replicasets.apps/shop/web",
    "shop/web",
    "shop/web -n shop",
    "web -n shop",
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Reference, ...]]:
    """What the rooms are asked about, whichever command it was."""
    found: list[tuple[Reference, ...]] = []
    monkeypatch.delenv(CONFIG_ENV, raising=False)

    async def answer(question: Any, *_: object) -> Answer:
        found.append((question.subject, *question.others))
        return Answer("", 0)

    async def recall(asked: Any, *_: object) -> Answer:
        found.append(tuple(one.of for one in asked))
        return Answer("", 0)

    async def stream(request: Any, *_: object) -> None:
        found.append(request.of)

    monkeypatch.setattr(why, "run", answer)
    monkeypatch.setattr(why, "run_past", recall)

    async def plan(request: Any, *_: object) -> Answer:
        found.append(request.of)
        return Answer("", 0)

    monkeypatch.setattr(plans, "run", plan)
    monkeypatch.setattr(decisions, "run", stream)
    monkeypatch.setattr(ledger, "history", lambda request, *_: found.append(request.of))
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "command",
    [
        "why {} --from x",
        "why {} --at 2h --ledger x",
        "why-not {} c2 --from x",
        "why-not {} --cluster c2 --from x",
        "decisions {}",
        "history {} --file x",
        "history {} --at 2h --file x",
        "plan {} --remove-cluster c --from x",
    ],
)
def test_every_command_takes_every_form(
    asked: list[tuple[Reference, ...]], form: str, command: str
) -> None:
    assert status(*command.format(form).split()) == 0
    ((found,),) = asked
    assert any(one.means(*WEB) for one in found)


@pytest.mark.parametrize("words", ["rs web api", "rs/web rs/api", "shop/web shop/api", "web api"])
@pytest.mark.parametrize(
    "command",
    ["why {} --from x", "decisions {}", "history {} --file x", "plan {} --staged --from x"],
)
def test_several_are_named_at_once(
    asked: list[tuple[Reference, ...]], words: str, command: str
) -> None:
    assert status(*command.format(words).split()) == 0
    assert [of[-1].name for of in asked[0]] == ["web", "api"]


@pytest.mark.parametrize(
    "command", ["decisions {} -A", "history {} --file x", "plan {} --staged --from x"]
)
def test_all_of_a_kind_are_listed(asked: list[tuple[Reference, ...]], command: str) -> None:
    assert status(*command.format("rs").split()) == 0
    (((one,),),) = asked
    assert (one.kind, one.name) == ("rs", None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("why rs --from x", "rs: a name is missing, as in rs/web or rs web"),
        (
            "why pods web --from x",
            "decisions are not about pods, but about replicasets, as in",
        ),
        ("why-not web --from x", "web: name an object and a cluster, as in replicaset/web c2"),
        ("why a/b/c --from x", "decisions are not about a, but about replicasets"),
        ("why rs/shop/web -n ml --from x", "it is in namespace shop, and -n says ml"),
        ("decisions pods", "decisions are not about pods, but about replicasets"),
        ("plan pods --staged --from x", "decisions are not about pods, but about replicasets"),
        ("plan -l a,, --staged --from x", '--selector: "a,,": not a label selector, as a=b'),
        ("what-if c1.labels.a=b -l = --from x", '--selector: "=": not a label selector, as a=b'),
        ("history pods", "decisions are not about pods, but about replicasets"),
        ("history --at 2h rs", "rs: a name is missing, as in rs/web or rs web"),
        ("remediate apply", "apply: say what, either objects, as in replicaset/web, or -l LABELS"),
        ("remediate apply -l a=b --all", "apply: say what, either objects, as in replicaset/web"),
        ("decisions -l a=b -w", "--selector: goes without --watch"),
        ("decisions -l =", '--selector: "=": not a label selector, as a=b'),
        ("stage web", "web: expected a policy and a stage, as in placement canary: candidate"),
        ("stage web api active", "web api: one policy at a time"),
        ("stage pod/web active", "pod/web: no policy; as in placement or placementpolicy/"),
    ],
)
def test_wrong_name_is_said_with_what_would_be_right(
    asked: list[tuple[Reference, ...]], capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert status(*line.split()) not in (0, None)
    assert said in capsys.readouterr().err
    assert asked == []


async def _called(_client: object, _gvr: object) -> frozenset[str]:
    return frozenset({"fleetset"})


class _Client:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


def test_discovery_is_asked_for_a_word_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "kube_client", lambda _settings: _Client())
    monkeypatch.setattr(discovery, "names_of", _called)
    found = names.discovered(Settings(), ["fleetset", "web"], offline=False)
    assert {"fleetset", "rs"} <= found["replicasets"]
    for words, offline in ((["rs", "web"], False), (["web"], False), (["fleetset/web"], True)):
        assert names.discovered(Settings(), words, offline=offline) == names.kinds_of(Settings())
