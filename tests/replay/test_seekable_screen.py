"""A recording's screen over time: seeking to a time shows the same as playing up to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from relay.recording.asciicast import Cast
from relay.replay import seekable_screen
from relay.replay.seekable_screen import SeekableScreen
from replay.casts import cast, said


def rows(seekable: SeekableScreen) -> list[str]:
    return [row.text for row in seekable.screen.rows()]


def shown_at(recorded: Cast, time: float) -> list[str]:
    """Return the screen after playing from the start up to `time`."""
    with SeekableScreen(recorded) as seekable:
        while seekable.upcoming is not None and seekable.upcoming <= time:
            seekable.step()
        return rows(seekable)


@pytest.mark.parametrize("every", [1, 100, 10**9])
def test_every_path_to_a_time_shows_the_same_screen(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seekable_screen, "EVERY", every)
    rng = random.Random(7)
    events = [
        (number / 2, "o", f"\x1b[{rng.randint(1, 8)};{rng.randint(1, 30)}H\x1b[3{number % 8}mn{number}")
        for number in range(60)
    ]
    events[20] = (10.0, "r", "30x6")
    recorded = Cast(cast(tmp_path / "a.cast", *events))
    with SeekableScreen(recorded) as seekable:
        for _ in range(30):
            time = rng.randint(-4, 132) / 4
            seekable.seek(time)
            assert rows(seekable) == shown_at(recorded, time)
            assert seekable.recorded == ((30, 6) if time >= 10 else (40, 8))


def test_the_primary_screen_is_kept_under_an_alternate_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seekable_screen, "EVERY", 1)
    events = [
        (0.0, "o", "shell"),
        (1.0, "o", "$ \x1b[?25;1049h\x1b[Hpager"),
        (2.0, "o", "."),
        (3.0, "o", "."),
    ]
    recorded = Cast(cast(tmp_path / "a.cast", *events, (4.0, "o", "\x1b[?1049l")))
    with SeekableScreen(recorded) as seekable:
        seekable.seek(3.5)
        seekable.seek(2.5)
        assert rows(seekable)[0] == "pager."
        seekable.seek(4.0)
        assert rows(seekable)[0] == "shell$"


def test_snapshots_use_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seekable_screen, "EVERY", 1)
    monkeypatch.setattr(seekable_screen, "KEPT", 2000)
    recorded = Cast(cast(tmp_path / "a.cast", *said(*(f"line {number}" for number in range(300)))))
    with SeekableScreen(recorded) as seekable:
        seekable.seek(1000.0)
        assert 0 < sum(len(each.picture) for each in seekable._snapshots) < 4000
        seekable.seek(150.5)
        assert rows(seekable) == shown_at(recorded, 150.5)


def test_a_huge_claimed_size_uses_no_memory(tmp_path: Path) -> None:
    recorded = Cast(cast(tmp_path / "a.cast", (0.0, "r", "10000x10000"), columns=1, rows=1))
    with SeekableScreen(recorded) as seekable:
        assert (seekable.screen.columns, seekable.screen.height) == (1, 1)
        seekable.step()
        assert seekable.recorded == (10000, 10000)
        assert (seekable.screen.columns, seekable.screen.height) == (
            seekable_screen.MAX_COLUMNS,
            seekable_screen.MAX_ROWS,
        )
