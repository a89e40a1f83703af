from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.openreports import Finding, Outcome, content, document, report_of
from kube_sync.objects import ObjectKey


def finding(name: str, result: Outcome = "warn", *, since: int = 1, **more: Any) -> Finding:
    key = ObjectKey("shop", name)
    plain: dict[str, Any] = {"category": "held", "rule": "mass", "message": "too many"} | more
    return Finding("apps/v1", "ReplicaSet", key, f"u-{name}", result=result, since=since, **plain)


def item(report: Any) -> Item:
    metadata = report["metadata"] | {"uid": "u1", "resourceVersion": "7"}
    key = ObjectKey(metadata["namespace"], metadata["name"])
    return Item(
        key, "u1", ResourceVersion("7"), msgspec.json.encode({**report, "metadata": metadata})
    )


def test_report_has_what_was_found_the_worst_first() -> None:
    found = [finding("a"), finding("c", "error"), finding("b", "fail", properties={"approve": "x"})]
    report = document("shop", found, 10)
    assert report["scope"] == {"apiVersion": "v1", "kind": "Namespace", "name": "shop"}
    assert report["summary"] == {"pass": 0, "skip": 0, "error": 1, "fail": 1, "warn": 1}
    assert [one["resources"][0]["name"] for one in report["results"]] == ["c", "b", "a"]
    assert report["results"][1] == {
        "source": "kube-sync",
        "policy": "placement",
        "category": "held",
        "rule": "mass",
        "result": "fail",
        "scored": True,
        "message": "too many",
        "timestamp": {"seconds": 1, "nanos": 0},
        "resources": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "namespace": "shop",
                "name": "b",
                "uid": "u-b",
            }
        ],
        "properties": {"approve": "x"},
    }
    assert "annotations" not in report["metadata"]


def test_report_that_is_cut_says_how_many_results_it_lacks_and_counts_them() -> None:
    report = document("shop", [finding(name) for name in "abc"], 2)
    assert [one["resources"][0]["name"] for one in report["results"]] == ["a", "b"]
    assert report["metadata"]["annotations"] == {"kube-sync.io/results-left-out": "1"}
    assert report["summary"]["warn"] == 3
    assert report["configuration"] == {"limits": {"maxResults": 2}}


def test_texts_are_bounded() -> None:
    long = finding("a", message="aü" * 2000, properties={"changes": "c" * 2000})
    (result,) = document("shop", [long], 1)["results"]
    assert (result["message"], len(result["properties"]["changes"])) == ("aü" * 166 + "a", 500)


def test_report_with_most_results_and_the_longest_texts_fits_into_an_object() -> None:
    long: dict[str, Any] = {"message": "ü" * 2000, "properties": {"changes": "c" * 2000}}
    found = [finding(f"{'n' * 248}-{number:04}", **long) for number in range(500)]
    assert len(msgspec.json.encode(document("shop", found, 500))) < 1_000_000


def test_stored_report_says_what_was_written_whatever_its_times() -> None:
    found = [finding("a"), finding("b", "fail")]
    stored = report_of(item(document("shop", found, 1)))
    assert stored is not None
    assert (stored.key, stored.uid) == (ObjectKey("shop", "kube-sync-placement"), "u1")
    later = [finding("a", since=9), finding("b", "fail", since=9)]
    assert stored.content == content(document("shop", later, 1))
    assert stored.content != content(document("shop", later, 2))
    assert stored.content != content(document("shop", [*later, finding("c")], 1))


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "other", "namespace": "shop"}},
        {"metadata": {"name": "kube-sync-placement", "namespace": "shop"}},
        {"results": "no list"},
    ],
)
def test_report_of_another_writer_or_shape_is_none_of_ours(change: dict[str, Any]) -> None:
    report = document("shop", [finding("a")], 1)
    assert report_of(item(report)) is not None
    assert report_of(item(report | change)) is None
