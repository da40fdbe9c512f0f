"""What an earlier session did not hear, no later one acts on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.directives.directive import Directive
from relay.directives.hearing import EarlierSessions, Hearing
from relay.place import TERMINAL, TRANSCRIPT, Place
from relay.storage.progress import Progress

ALL = Hearing(
    frozenset({"deploy", "relay"}), frozenset({"deploy", "relay"}), subagents=True, prefix="@", form="x"
)


def heard(tmp_path: Path, source: str, *earlier: tuple[int, Hearing], at: int = 20) -> bool:
    """Return whether `@deploy` at `at` was heard, by sessions that joined at these places."""
    path = tmp_path / "progress.jsonl"
    for number, (joined, hearing) in enumerate(earlier):
        progress = Progress(path, resumed=number > 0)
        EarlierSessions(progress, hearing, joined).begin()
        progress.close(remove=False)
    progress = Progress(path, resumed=True)
    return EarlierSessions(progress, ALL, 30).heard(Directive("deploy", "x", "", 0.0, Place(source, at)))


LESS: list[tuple[str, dict[str, Any], bool]] = [
    (TERMINAL, {}, True),
    (TRANSCRIPT, {}, True),
    (f"{TRANSCRIPT}/7", {}, True),
    (TERMINAL, {"terminal": frozenset({"relay"})}, False),
    (TRANSCRIPT, {"terminal": frozenset({"relay"})}, True),
    (TRANSCRIPT, {"namespaces": frozenset({"relay"}), "terminal": frozenset({"relay"})}, False),
    (f"{TRANSCRIPT}/7", {"subagents": False}, False),
    (TRANSCRIPT, {"subagents": False}, True),
    (TERMINAL, {"prefix": "!"}, False),
    (TRANSCRIPT, {"prefix": "!"}, False),
    (TERMINAL, {"form": "y"}, False),
    (TRANSCRIPT, {"form": "y"}, True),
]


@pytest.mark.parametrize(("source", "less", "expected"), LESS)
def test_a_session_that_hears_less(tmp_path: Path, source: str, less: dict[str, Any], expected: bool) -> None:
    assert heard(tmp_path, source, (0, replace(ALL, **less))) is expected


def test_the_session_of_that_time_counts(tmp_path: Path) -> None:
    """Even if another one has begun since, and was killed before it had read that far."""
    deaf = replace(ALL, terminal=frozenset())
    assert not heard(tmp_path, TERMINAL, (0, deaf), (25, ALL))
    assert heard(tmp_path, TERMINAL, (0, deaf), (15, ALL))
    assert heard(tmp_path, TERMINAL, (0, ALL), (25, deaf))
    assert not heard(tmp_path, TERMINAL, (0, ALL), (15, deaf))


def test_what_a_session_acted_on_was_heard(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress.jsonl", resumed=False)
    EarlierSessions(progress, replace(ALL, terminal=frozenset()), 0).begin()
    progress.begin(Place(TERMINAL, 20), "digest", "@deploy")
    progress.close(remove=False)
    progress = Progress(tmp_path / "progress.jsonl", resumed=True)
    directive = Directive("deploy", "x", "", 0.0, Place(TERMINAL, 20))
    assert EarlierSessions(progress, ALL, 30).heard(directive)
