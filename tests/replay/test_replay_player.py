"""How the player handles time and keys, with a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.recording.asciicast import Cast
from relay.replay import player as players
from relay.replay import timeline
from relay.replay.player import Player
from relay.replay.show import frame, status
from replay.casts import cast, said

Make = Callable[..., Player]

ENTRIES = (
    {"event": "directive", "namespace": "relay", "target": "Bob", "body": "hi", "at": 2.0, "name": "Alice"},
    {"event": "injection", "source": "hello \x1b]0;x\x07", "result": "injected", "at": 6.5, "name": "Alice"},
)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Make]:
    made: list[Player] = []

    def make(
        *events: Any, entries: Any = ENTRIES, columns: int = 40, rows: int = 8, **options: Any
    ) -> Player:
        path = cast(tmp_path / "a.cast", *events, entries=entries, columns=columns, rows=rows)
        recorded = Cast(path)
        made.append(Player(recorded, timeline.read(recorded), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def shown(player: Player) -> str:
    return " ".join(row.text for row in player.seekable.screen.rows() if row.text)


def test_playback_follows_the_recordings_times(play: Make) -> None:
    player = play(*said("a", "b", "c"))
    player.advance(0.0)
    assert (shown(player), player.due) == ("a", 1.0)
    player.advance(0.75)
    assert (shown(player), player.due, player.position) == ("a", 0.25, 0.75)
    player.advance(0.25)
    assert shown(player) == "a b"
    player.advance(5.0)
    assert (shown(player), player.due, player.ended, player.position) == ("a b c", None, True, 2.0)


@pytest.mark.parametrize(("speed", "seconds"), [(2.0, 0.5), (0.5, 2.0)])
def test_the_speed_scales_time(speed: float, seconds: float, play: Make) -> None:
    player = play(*said("a", "b"), speed=speed)
    player.advance(0.0)
    assert player.due == seconds
    player.advance(seconds)
    assert shown(player) == "a b"


def test_plus_and_minus_change_the_speed_within_bounds(play: Make) -> None:
    player = play(*said("a"))
    for key, speed in (("+", 2.0), ("=", 4.0), ("-", 2.0), ("-", 1.0), ("-", 0.5)):
        player.press(key)
        assert player.speed == speed
    for _ in range(50):
        player.press("-")
    assert player.speed == players.SLOWEST
    for _ in range(50):
        player.press("+")
    assert player.speed == players.FASTEST


def test_a_long_pause_is_shortened(play: Make) -> None:
    player = play((0.0, "o", "a"), (3600.0, "o", "b"), (3601.0, "o", "c"), idle=2.0)
    player.advance(0.0)
    assert player.due == 2.0
    player.advance(2.0)
    assert (shown(player), player.position, player.due) == ("ab", 3600.0, 1.0)


def test_a_period_skips_events_that_show_nothing(play: Make) -> None:
    player = play((0.0, "o", "a"), (1.0, "r", "30x6"), (2.0, "i", "typed"), (3.0, "o", "b"))
    player.advance(0.0)
    player.press(".")
    assert (shown(player), player.position) == ("ab", 3.0)
    player.press(".")
    assert player.ended


def test_space_pauses_and_a_period_advances_one_step(play: Make) -> None:
    player = play(*said("a", "b", "c"))
    player.advance(0.0)
    player.press(" ")
    player.advance(100.0)
    assert (shown(player), player.due) == ("a", None)
    player.press(".")
    assert (shown(player), player.paused) == ("a b", True)
    player.press(" ")
    player.advance(1.0)
    assert shown(player) == "a b c"


def test_arrows_move_back_and_forward(play: Make) -> None:
    player = play(*said(*"abcdefghijkl"), at=8.0, idle=1.0)
    player.press("left")
    assert (player.position, shown(player)) == (3.0, "a b c d")
    player.press("right")
    assert player.position == 8.0
    for _ in range(3):
        player.press("right")
    assert (player.position, player.ended) == (11.0, True)
    for _ in range(4):
        player.press("left")
    assert (player.position, shown(player)) == (0.0, "a")


def test_brackets_move_between_events(play: Make) -> None:
    player = play(*said(*"abcdefgh"))
    for key, position in (("]", 2.0), ("]", 6.5), ("]", 6.5), ("[", 2.0), ("[", 2.0)):
        player.press(key)
        assert player.position == position
    assert player.message == "no earlier event"
    player.go(0.0)
    player.press("]")
    assert player.message == "directive: @relay:Bob hi"


def test_search_moves_to_each_match(play: Make) -> None:
    player = play(*said("one", "Fish", "two", "\x1b[2J", "fish and FISH", "fish"))
    for key in ("/", "f", "i", "s", "x", "backspace", "h", "enter"):
        player.press(key)
    assert (player.position, player.paused, player.message) == (1.0, True, "Fish")
    player.press("n")
    assert (player.position, player.message) == (4.0, "fish and FISH")
    player.press("n")
    assert (player.position, player.message) == (5.0, "fish")
    player.press("n")
    assert player.message == "nothing later (3 places in all)"
    player.press("N")
    assert player.position == 4.0


def test_a_search_may_find_nothing_or_be_cancelled(play: Make) -> None:
    player = play(*said("one"))
    for key in ("/", "z", "enter"):
        player.press(key)
    assert player.message == "not found"
    player.press("/")
    player.press("q")
    assert player.search.typing == "q" and not player.quit
    player.press("escape")
    assert player.search.typing is None
    player.press("q")
    assert player.quit


def test_a_stopped_search_can_be_repeated(play: Make) -> None:
    impatient = [True]
    player = play(*said("one", "two"), stopped=lambda: impatient[0])
    for key in ("/", "o", "enter"):
        player.press(key)
    assert player.message == "search stopped"
    impatient[0] = False
    for key in ("/", "t", "w", "o", "enter"):
        player.press(key)
    assert player.position == 1.0


def test_playback_at_high_speed_yields_to_keys(play: Make) -> None:
    player = play(*((number / 10, "o", "x" * (300 << 10)) for number in range(20)), speed=1000.0)
    player.advance(60.0)
    assert not player.ended


def test_events_are_shown_next_to_the_screen_at_their_times(play: Make) -> None:
    """R42: the archive contains hooks' results, and they are shown."""
    rules = [
        {"name": "lint", "exit_code": 2, "output_preview": "3 errors\n"},
        {"name": "log", "exit_code": 0},
    ]
    fired = {"event": "hook_fired", "hook_name": "Stop", "outcome": "block", "matched_rule_count": 2}
    fired |= {"rules": rules, "at": 1.0, "name": "Alice"}
    player = play(*said(*"abcdefgh"), entries=(fired, *ENTRIES))
    lines, _ = frame(player, "Alice", 60, 20, events=True)
    assert not any("directive" in line for line in lines)
    player.go(7.0)
    lines, _ = frame(player, "Alice", 100, 20, events=True)
    assert len(lines) == 20
    text = "\n".join(lines)
    assert "0:02  directive        @relay:Bob hi" in text
    assert "0:01  hook_fired       Stop · block · 2 · lint: exit 2, 3 errors · log" in text
    assert "hello ␛]0;x␇" in text and "\x1b]" not in text


def test_the_panel_shows_events_after_the_last_output(play: Make) -> None:
    entries = ({"event": "session_end", "code": 0, "at": 9.0},)
    player = play(*said("a", "b"), entries=entries)
    assert not any("session_end" in line for line in frame(player, "Alice", 60, 20, events=True)[0])
    player.press("]")
    assert any("session_end" in line for line in frame(player, "Alice", 60, 20, events=True)[0])


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 1), (2, 3), (200, 100)])
@pytest.mark.parametrize("events", [True, False])
def test_a_frame_fits_every_terminal(size: tuple[int, int], events: bool, play: Make) -> None:
    player = play(*said("some words", "漢字漢字"), columns=30, rows=10)
    player.go(1.0)
    lines, cursor = frame(player, "Alice", *size, events=events)
    assert len(lines) == size[1]
    assert cursor is None or (cursor[0] < size[0] and cursor[1] < size[1])


def test_the_status_line_shows_the_position_and_what_is_cut_off(play: Make) -> None:
    player = play(*said("a"), (65.0, "o", "b"), columns=100, rows=30, at=65.0)
    assert status(player, "Al\x1bice", 80, 23).startswith(" end 1:05/1:05  1x  Al␛ice  100x30 cut to 80x23")
    assert "cut" not in status(player, "Alice", 100, 30)


def test_events_after_the_last_output_can_be_reached(play: Make) -> None:
    """R45: a session's last entries come after its output."""
    end = {"event": "session_end", "code": 0, "at": 30.0, "name": "Alice"}
    player = play(*said("a", "b"), entries=(end,))
    player.press("]")
    assert player.position == 30.0 and player.message == "session_end: 0"
    assert "0:30/0:30" in status(player, "Alice", 80, 24) and shown(player) == "a b"
    player.press("left")
    assert player.position == 25.0
