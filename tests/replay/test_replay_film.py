"""The screen along the time of a recording: going to a time shows what playing up to it shows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from relay.replay import seekable_screen as films
from relay.replay.seekable_screen import Film
from relay.replay.tape import Tape
from replay.tapes import cast, said


def rows(film: Film) -> list[str]:
    return [row.text for row in film.screen.rows()]


def shown_at(tape: Tape, time: float) -> list[str]:
    """By playing from the beginning."""
    with Film(tape) as film:
        while film.upcoming is not None and film.upcoming <= time:
            film.step()
        return rows(film)


@pytest.mark.parametrize("every", [1, 100, 10**9])
def test_every_way_to_a_time_leads_to_the_same_screen(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(films, "EVERY", every)
    chance = random.Random(7)
    events = [
        (number / 2, "o", f"\x1b[{chance.randint(1, 8)};{chance.randint(1, 30)}H\x1b[3{number % 8}mn{number}")
        for number in range(60)
    ]
    events[20] = (10.0, "r", "30x6")
    tape = Tape([cast(tmp_path / "a.cast", *events)])
    with Film(tape) as film:
        for _ in range(30):
            time = chance.randint(-4, 132) / 4
            film.seek(time)
            assert rows(film) == shown_at(tape, time)
            assert film.recorded == ((30, 6) if time >= 10 else (40, 8))


def test_under_an_alternate_screen_the_primary_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(films, "EVERY", 1)
    events = [
        (0.0, "o", "shell"),
        (1.0, "o", "$ \x1b[?25;1049h\x1b[Hpager"),
        (2.0, "o", "."),
        (3.0, "o", "."),
    ]
    tape = Tape([cast(tmp_path / "a.cast", *events, (4.0, "o", "\x1b[?1049l"))])
    with Film(tape) as film:
        film.seek(3.5)
        film.seek(2.5)
        assert rows(film)[0] == "pager."
        film.seek(4.0)
        assert rows(film)[0] == "shell$"


def test_snapshots_take_a_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films, "EVERY", 1)
    monkeypatch.setattr(films, "KEPT", 2000)
    tape = Tape([cast(tmp_path / "a.cast", *said(*(f"line {number}" for number in range(300))))])
    with Film(tape) as film:
        film.seek(1000.0)
        assert 0 < sum(len(each.picture) for each in film._snapshots) < 4000
        film.seek(150.5)
        assert rows(film) == shown_at(tape, 150.5)


def test_a_claimed_size_takes_no_memory(tmp_path: Path) -> None:
    tape = Tape([cast(tmp_path / "a.cast", (0.0, "r", "10000x10000"), columns=1, rows=1)])
    with Film(tape) as film:
        assert (film.screen.columns, film.screen.height) == (1, 1)
        film.step()
        assert film.recorded == (10000, 10000)
        assert (film.screen.columns, film.screen.height) == (films.MAX_COLUMNS, films.MAX_ROWS)
