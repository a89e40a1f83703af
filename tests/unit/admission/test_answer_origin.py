from __future__ import annotations

from kube_sync.admission.answer_origin import AnswerOrigin


class World:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.origin = AnswerOrigin(self.notes.append)


def test_answer_of_the_confirmed_load_is_fine_and_said_once() -> None:
    world = World()
    assert [world.origin.is_confirmed("e", "e") for _ in range(3)] == [True] * 3
    assert world.notes == ["ok"]


def test_another_opa_is_said_once_with_the_settings_to_look_at() -> None:
    world = World()
    assert [world.origin.is_confirmed("e", "other") for _ in range(3)] == [False] * 3
    (note,) = world.notes
    assert note.startswith("answers are not reused")
    assert "opa.url" in note
    assert "decisions.url" in note


def test_opa_that_does_not_name_its_load_is_said_with_what_it_lacks() -> None:
    world = World()
    assert not world.origin.is_confirmed("e", "")
    assert "kube_sync/batch/reviewed" in world.notes[0]


def test_replicator_that_announces_no_load_confirms_none() -> None:
    world = World()
    assert not world.origin.is_confirmed("", "")
    assert not world.origin.is_confirmed("", "e")
    assert len(world.notes) == 1


def test_several_opas_behind_one_address_are_told_apart() -> None:
    world = World()
    found = [world.origin.is_confirmed("e", answered) for answered in ("e", "o", "e", "o")]
    assert found == [True, False, True, False]
    assert world.notes[0] == "ok"
    assert [note.startswith("some answers are not reused") for note in world.notes[1:]] == [True]


def test_next_load_is_judged_afresh() -> None:
    world = World()
    world.origin.is_confirmed("e", "next")  # OPA has it, and the replicator has not yet said so
    assert world.origin.is_confirmed("next", "next")
    assert world.notes[-1] == "ok"
