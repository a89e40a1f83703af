from __future__ import annotations

import pytest

from kube_sync.opa.builtins import REFUSED
from kube_sync.opa.inspection import Inspected
from kube_sync.policies.guard import Guard

DATA = [("kubernetes", "clusters")]


def findings(guard: Guard, package: str, *names: str) -> list[str]:
    module = Inspected(tuple(package.split(".")), dict.fromkeys(names, 7))
    return [found.message for found in guard.findings(module)]


@pytest.mark.parametrize(
    "package",
    ["system", "system.authz", "kube_sync.batch", "kube_sync", "kube_sync_stage.shadow.a"],
)
def test_reserved_package_is_refused(package: str) -> None:
    assert findings(Guard(DATA), package) == [f"package {package} is reserved"]


def test_package_that_only_begins_like_a_reserved_one_is_not() -> None:
    assert findings(Guard(DATA), "systems.a") == []


def test_policies_may_say_how_much_may_move() -> None:
    for guard in (Guard(DATA), Guard(DATA, by_bundle=True)):
        assert findings(guard, "kube_sync_budget") == []


def test_reserved_package_is_allowed_by_name_with_all_below_it() -> None:
    guard = Guard(DATA, packages=frozenset({"system.log"}))
    assert findings(guard, "system.log") == findings(guard, "system.log.mask") == []
    assert findings(guard, "system.logs") == ["package system.logs is reserved"]


@pytest.mark.parametrize("package", ["kubernetes.clusters", "kubernetes.clusters.east"])
def test_package_where_replicated_data_lies_is_refused(package: str) -> None:
    assert findings(Guard(DATA), package) == [f"package {package} is where replicated data lies"]


def test_package_beside_replicated_data_is_allowed() -> None:
    assert findings(Guard(DATA, by_bundle=True), "kubernetes.admission") == []


def test_package_above_replicated_data_is_refused_only_in_a_bundle() -> None:
    """A bundle claims all that lies below its packages, so that nothing could be pushed there."""
    assert findings(Guard(DATA), "kubernetes") == []
    (found,) = findings(Guard(DATA, by_bundle=True), "kubernetes")
    assert found.startswith("package kubernetes is above replicated data (kubernetes.clusters)")


def test_bundle_may_not_replace_what_opa_loaded_itself() -> None:
    """Activating a bundle removes every module below its packages."""
    own = [("base", "lib")]
    for package in ("base", "base.lib"):
        (found,) = findings(Guard((), own=own, by_bundle=True), package)
        assert "loaded by itself (base.lib)" in found
    assert findings(Guard((), own=own, by_bundle=True), "base.lib.more") == []
    assert findings(Guard((), own=own), "base") == []


@pytest.mark.parametrize("name", [*REFUSED])
def test_builtin_that_is_refused_is_allowed_by_name(name: str) -> None:
    (found,) = findings(Guard(()), "a", name)
    assert found.startswith(f"builtin {name} is not allowed: {REFUSED[name]} (an administrator may")
    assert findings(Guard((), builtins=frozenset({name})), "a", name) == []


def test_builtins_of_opas_own_modules_are_no_policys() -> None:
    assert findings(Guard((), own_builtins=frozenset({"http.send"})), "a", "http.send")


def test_finding_names_the_row() -> None:
    module = Inspected(("a",), {"http.send": 7}, schemas=3)
    assert [found.row for found in Guard(()).findings(module)] == [3, 7]


def test_module_that_cannot_be_inspected_is_refused() -> None:
    (found,) = Guard(()).findings(Inspected((), fault="opa parse took more than 20 s"))
    assert found.message == "opa parse took more than 20 s"


@pytest.mark.parametrize("by_bundle", [False, True])
@pytest.mark.parametrize(
    "package", ["kube_sync.scheduling", "kube_sync.scheduling.use", "kube_sync"]
)
def test_what_is_built_in_is_nobody_elses_even_if_it_is_allowed(
    package: str,
    by_bundle: bool,  # noqa: FBT001 - pytest hands it over by name
) -> None:
    guard = Guard(
        DATA,
        packages=frozenset({"kube_sync"}),
        builtin=[("kube_sync", "scheduling")],
        by_bundle=by_bundle,
    )
    assert findings(guard, package) == [f"package {package} is built in (kube_sync.scheduling)"]
    assert findings(guard, "kube_sync.schedule") == []


def test_rego_v0_is_refused_where_nothing_could_tell_opa_of_it() -> None:
    old = Inspected(("a",), rego_version=0)
    (found,) = Guard(DATA, one_by_one=True).findings(old)
    assert "PUT /v1/policies" in found.message
    assert "opa fmt --write --rego-v1" in found.message
    assert Guard(DATA, by_bundle=True).findings(old) == []
    assert Guard(DATA, one_by_one=True).findings(Inspected(("a",))) == []
