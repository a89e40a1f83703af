from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kube_sync.observability.healthcheck import (
    PORTS,
    asked,
    found,
    page,
    reviewed,
    usual_pages,
)
from kube_sync.processes import commands
from tests.unit.observability.pages import serving_page

Serve = Callable[[int, str], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a page of a status and a text; return its URL."""
    with ExitStack() as stack:
        yield lambda status, text: stack.enter_context(serving_page(status, text))


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        (("0.0.0.0", 9401), "http://127.0.0.1:9401/readyz"),  # noqa: S104 - not to bind
        (("127.0.0.1", 1234), "http://127.0.0.1:1234/readyz"),
        (("::", 9401), "http://[::1]:9401/readyz"),
        (("fd00::1", 9401), "http://[fd00::1]:9401/readyz"),
        (("pod", 9401), "http://pod:9401/readyz"),
    ],
)
def test_page_is_reached_where_the_process_listens(listen: tuple[str, int], url: str) -> None:
    assert page(listen) == url


def test_page_that_is_ready_is_found_among_ports_of_nobody(serve: Serve) -> None:
    health = found(["http://127.0.0.1:1/readyz", serve(200, "opa: ok\nready\n")])
    assert (health.good, health.said) == (True, "opa: ok\nready\n")


def test_strangers_without_such_a_page_are_passed_over(serve: Serve) -> None:
    assert found([serve(404, "not found"), serve(200, "ready\n")]).good
    assert not found([serve(404, "not found")]).good


def test_one_that_is_not_ready_counts_wherever_it_is_found(serve: Serve) -> None:
    ready, unready = serve(200, "ready\n"), serve(503, "opa: away\nnot ready\n")
    for urls in ([ready, unready], [unready, ready]):
        health = found(urls)
        assert (health.good, health.said) == (False, "opa: away\nnot ready")


def test_nobody_anywhere_is_told_with_the_addresses() -> None:
    health = found(["http://127.0.0.1:1/readyz", "http://127.0.0.1:2/readyz"])
    assert not health.good
    assert "127.0.0.1:1/readyz, http://127.0.0.1:2" in health.said


def test_page_without_a_word_is_named(serve: Serve) -> None:
    url = serve(500, "")
    assert asked(url).said.startswith(f"{url}: HTTP Error 500")


@pytest.mark.parametrize(
    ("response", "good", "said"),
    [
        ('{"allowed": true}', True, "admitted"),
        ('{"allowed": false, "status": {"code": 403, "message": "no"}}', True, "denied: no"),
        ('{"allowed": false, "status": {"code": 503, "message": "OPA?"}}', False, "denied: OPA?"),
    ],
)
def test_webhook_is_good_if_anything_decides(
    serve: Serve, response: str, *, good: bool, said: str
) -> None:
    health = reviewed(serve(200, f'{{"response": {response}}}'))
    assert (health.good, health.said.strip().partition("readyz: ")[2]) == (good, said)


@pytest.mark.parametrize("text", ["ready\n", "[]", '{"response": {"uid": "x"}}', '{"response": 1}'])
def test_answer_that_is_no_review_is_no_webhook(serve: Serve, text: str) -> None:
    assert "no AdmissionReview" in reviewed(serve(200, text)).said


def test_webhook_that_refuses_the_caller_says_why(serve: Serve) -> None:
    health = reviewed(serve(403, "the client's certificate has none of the names\n"))
    assert (health.good, health.said) == (False, "the client's certificate has none of the names")


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    health = reviewed("https://127.0.0.1:1/", str(tmp_path / "none.crt"))
    assert not health.good
    assert "none.crt" in health.said


def test_port_of_every_command_is_looked_at() -> None:
    source = Path(commands.__file__).read_text(encoding="utf-8")
    ports = {int(port) for port in re.findall(r"process\(settings, (\d+)[,)]", source)}
    assert len(ports) > 4
    assert {page(("127.0.0.1", port)) for port in ports} <= set(usual_pages())
    assert 9404 not in PORTS, "the remediator's own page has no readiness"
