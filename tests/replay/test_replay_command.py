"""`relay replay` without a user's terminal: the list, the text, searching, exporting, and permission."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relay.recording import store
from relay.recording.asciicast import Cast
from replay.casts import BEGAN, cast, said, session
from support import Relay

FIRED = {
    "event": "hook_fired",
    "name": "Alice",
    "hook_name": "PreToolUse",
    "outcome": "block",
    "matched_rule_count": 1,
    "rules": [{"name": "guard", "exit_code": 2, "output_preview": "no rm -rf \x1b[31mhere"}],
    "at": 1.25,
}
SENT = {"event": "message_sent", "name": "Alice", "to": "Bob", "body": "done\nnow", "at": 0.5}


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# The list.


def test_the_list_has_the_newest_last(relay: Relay) -> None:
    session(relay.home, "Bob", *said("x"), id="bbbbbbbb", began=BEGAN + 60, team="blue", part=1)
    session(relay.home, "Bob", (70.0, "o", "x"), id="bbbbbbbb", began=BEGAN + 60, team="blue", part=2)
    session(relay.home, "Alice", *said("x", "y"), id="aaaaaaaa", command="claude\x1b[2J")
    listed = json.loads(relay("replay", "--json").stdout)
    assert [(each["name"], each["team"], each["session"], each["seconds"]) for each in listed] == [
        ("Alice", "default", "aaaaaaaa", 1.0),
        ("Bob", "blue", "bbbbbbbb", 70.0),
    ]
    assert [len(each["files"]) for each in listed] == [1, 2]
    assert listed[0]["began"] == BEGAN and not listed[0]["running"] and listed[0]["bytes"] > 50
    header, alice, bob = relay("replay").stdout.splitlines()
    assert header.split() == ["NAME", "TEAM", "SESSION", "BEGAN", "LENGTH", "SIZE", "COMMAND"]
    assert alice.startswith("Alice") and alice.endswith("claude␛[2J")
    assert "1:10" in bob
    assert [each["name"] for each in json.loads(relay("replay", "--json", "-t", "blue").stdout)] == ["Bob"]


def test_an_unreadable_recording_is_still_listed(relay: Relay) -> None:
    session(relay.home, "Alice").write_text("garbage")
    (entry,) = json.loads(relay("replay", "--json").stdout)
    assert (entry["seconds"], entry["command"]) == (None, None)
    assert " ? " in relay("replay").stdout


def test_without_recordings_the_list_says_so(relay: Relay) -> None:
    assert "no recordings" in relay("replay").stderr
    assert json.loads(relay("replay", "--json").stdout) == []


def test_the_list_has_the_latest_only(relay: Relay) -> None:
    for number in range(60):
        session(relay.home, f"A{number}", id=f"{number:08}", began=BEGAN + number)
    listed = relay("replay")
    assert [row.split()[0] for row in listed.stdout.splitlines()[1:]] == [
        f"A{number}" for number in range(10, 60)
    ]
    assert "10 earlier recordings omitted" in listed.stderr
    assert len(relay("replay", "-n", "2").stdout.splitlines()) == 3
    assert len(json.loads(relay("replay", "--json").stdout)) == 60
    refused = relay("replay", "A1", "--all", check=False)
    assert (refused.returncode, "go with the list" in refused.stderr) == (2, True)


# Selecting a recording.


def test_a_name_selects_the_latest_session_and_session_another(relay: Relay, tmp_path: Path) -> None:
    session(relay.home, "Alice", *said("old"), id="aaaa0001")
    session(relay.home, "Alice", *said("new"), id="aaaa0002", began=BEGAN + 5)
    assert relay("replay", "ALICE").stdout == "new\n"
    assert relay("replay", "Alice", "--session", "aaaa0001").stdout == "old\n"
    refused = relay("replay", "Alice", "--session", "ffff", check=False)
    assert refused.returncode == 1 and "aaaa0001, aaaa0002" in refused.stderr
    unknown = relay("replay", "Alcie", check=False)
    assert "Did you mean 'Alice'?" in unknown.stderr and "Traceback" not in unknown.stderr
    path = cast(tmp_path / "other.cast", *said("a file"))
    assert relay("replay", path).stdout == "a file\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("none.cast",), "No such file"),
        (("x", "--speed", "0"), "not a valid speed"),
        (("x", "--speed", "nan"), "not a valid speed"),
        (("x", "--at", "-1"), "not a valid time"),
        (("x", "--idle", "soon"), "not a valid time"),
    ],
)
def test_an_invalid_argument_is_reported_without_a_traceback(
    arguments: tuple[str, ...], why: str, relay: Relay
) -> None:
    run = relay("replay", *arguments, check=False)
    assert run.returncode in {1, 2}
    assert why in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--search", "x"), ("--session", "aaaa"), ("--events",), ("--screen", "1"), ("--export", "-")],
)
def test_an_option_that_needs_a_name_says_so(arguments: tuple[str, ...], relay: Relay) -> None:
    session(relay.home, "Alice", *said("x"))
    run = relay("replay", *arguments, check=False)
    assert run.returncode == 2 and not run.stdout
    assert f"{arguments[0]} needs a NAME" in run.stderr


# As text.


def test_omitted_output_is_marked_in_the_text(relay: Relay) -> None:
    """R43: adjacent markers are combined; other markers are not in the text."""
    left_out = [(2.0, "m", "266 kB left out"), (2.5, "m", "1.5 MB left out")]
    session(relay.home, "Alice", *said("a", "b"), *left_out, (3.0, "m", "a note"), (4.0, "o", "c\r\n"))
    assert relay("replay", "Alice").stdout.splitlines() == ["a", "b", "[... 1.8 MB left out ...]", "c"]


def test_a_missing_beginning_is_marked_in_the_text(relay: Relay) -> None:
    """R43: the last two parts of a long session are kept."""
    session(relay.home, "Alice", *said("b"), part=2)
    session(relay.home, "Alice", *said("c"), part=3)
    assert relay("replay", "Alice").stdout.splitlines() == [
        "[... beginning no longer kept ...]",
        "b",
        "c",
    ]


def test_events_are_searched_too(relay: Relay) -> None:
    session(relay.home, "Alice", *said("done"), entries=[FIRED, SENT])
    found = relay("replay", "Alice", "--search", "DONE", "--events").stdout
    assert "message_sent" in found and "hook_fired" not in found
    assert relay("replay", "Alice", "--search", "nowhere", "--events", check=False).returncode == 1


def test_piped_output_is_the_text_without_pauses(relay: Relay) -> None:
    session(relay.home, "Alice", *said(*(f"line {n}" for n in range(100)), every=3600.0), rows=5)
    assert relay("replay", "Alice").stdout.splitlines() == [f"line {n}" for n in range(100)]


def test_each_line_of_a_redrawn_screen_is_printed_once(relay: Relay) -> None:
    frames = [(n / 10, "o", f"\x1b[2J\x1b[H{'.' * (n % 3)}\r\nthe answer\r\n") for n in range(20)]
    session(relay.home, "Alice", *frames)
    assert relay("replay", "Alice").stdout.splitlines().count("the answer") == 1


def test_the_text_has_no_control_sequences(relay: Relay) -> None:
    session(relay.home, "Alice", (0.0, "o", "a\x1b]0;owned\x07b\x1b[31mc\u202ed\r\n"))
    assert relay("replay", "Alice").stdout == "abc<U+202E>d\n"


def test_a_closed_pipe_is_not_an_error(relay: Relay) -> None:
    session(relay.home, "Alice", *said(*(f"line {n}" for n in range(20_000)), every=0.001))
    command = f"{sys.executable} -m relay replay Alice | head -n 1"
    run = subprocess.run(
        command, shell=True, env=relay.environment, cwd=relay.home, capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == ("line 0\n", "")


# Events.


def test_events_are_a_table_with_times(relay: Relay) -> None:
    """R42: a session's archive contains its hooks' results, and the replay shows them."""
    session(relay.home, "Alice", *said("a", "b"), entries=[FIRED, SENT])
    table = relay("replay", "Alice", "--events").stdout.splitlines()
    assert [line.split(None, 2) for line in table] == [
        ["0.500", "message_sent", "Bob · done now"],
        ["1.250", "hook_fired", "PreToolUse · block · 1 · guard: exit 2, no rm -rf ␛[31mhere"],
    ]
    first, second = lines_of(relay("replay", "Alice", "--events", "--json").stdout)
    assert (first["at"], first["kind"]) == (0.5, "message_sent")
    assert second["outcome"] == "block" and second["matched_rule_count"] == 1


def test_missing_and_damaged_events_are_skipped(relay: Relay) -> None:
    path = session(relay.home, "Alice", *said("a"))
    assert relay("replay", "Alice", "--events").stdout == ""
    odd = [{"event": "new_kind", "what": ["x", 1], "at": 2}, {"event": "notice", "at": "soon"}]
    odd += [
        {"event": "notice"},
        {"event": 5, "at": -3.0, "text": "early"},
        {"event": "notice", "at": 10**400},
    ]
    text = "\n".join(["{cut", "[" * 100_000, *map(json.dumps, odd), '{"event": "notice", "at": NaN}', '{"ev'])
    store.events_of(path).write_text(text)
    assert [line.split(None, 2) for line in relay("replay", "Alice", "--events").stdout.splitlines()] == [
        ["0.000", "5", "text=early"],
        ["2.000", "new_kind", 'what=["x", 1]'],
    ]


def test_events_of_several_parts_keep_their_times(relay: Relay) -> None:
    session(relay.home, "Alice", *said("a", "b"), entries=[SENT])
    session(relay.home, "Alice", (0.0, "o", "c"), (3.0, "o", "d"), part=2, entries=[{**FIRED, "at": 1.5}])
    found = lines_of(relay("replay", "Alice", "--events", "--json").stdout)
    assert [each["at"] for each in found] == [0.5, 2.5]


# Searching, and one screen.


def test_search_prints_each_match_with_its_time(relay: Relay) -> None:
    texts = ["nothing", "a FISH swims", "more", "\x1b[2J\x1b[H", "fish", "two fish"]
    session(relay.home, "Alice", *said(*texts))
    found = relay("replay", "Alice", "--search", "fish").stdout.splitlines()
    assert [line.split(None, 1) for line in found] == [
        ["1.000", "a FISH swims"],
        ["4.000", "fish"],
        ["5.000", "two fish"],
    ]
    assert lines_of(relay("replay", "Alice", "--search", "two", "--json").stdout) == [
        {"at": 5.0, "line": "two fish"}
    ]
    assert relay("replay", "Alice", "--search", "bird", check=False).returncode == 1


def test_search_finds_scrolled_and_wrapped_lines_and_redrawn_ones_once(relay: Relay) -> None:
    flood = "".join(f"line {n}\r\n" for n in range(500))
    spin = [(2.0 + n / 5, "o", f"\r\x1b[K{'|/-'[n % 3]} working {n}s") for n in range(20)]
    session(relay.home, "Alice", (0.0, "o", flood), (1.0, "o", "x" * 35 + " wrapped word\r\n"), *spin)
    assert relay("replay", "Alice", "--search", "line 77").stdout == "     0.000  line 77\n"
    assert relay("replay", "Alice", "--search", "wrapped word").stdout.startswith("     1.000")
    assert relay("replay", "Alice", "--search", "working").stdout.splitlines() == ["     2.000  | working 0s"]


def test_the_screen_at_a_given_time_is_printed(relay: Relay) -> None:
    session(relay.home, "Alice", *said("a", "b\x1b]0;t\x07", "c"), rows=3)
    assert relay("replay", "Alice", "--screen", "1").stdout == "a\nb\n"
    assert relay("replay", "Alice", "--screen", "0:02", "--json").stdout
    shown = json.loads(relay("replay", "Alice", "--screen", "99", "--json").stdout)
    assert shown == {"at": 99.0, "columns": 40, "rows": 3, "lines": ["b", "c"]}


# Exporting.


def test_export_joins_the_parts_and_marks_the_events(relay: Relay) -> None:
    more = {"env": {"TERM": "xterm", "SHELL": "/bin/sh", "SECRET": "x"}, "timestamp": BEGAN, "title": "Alice"}
    session(relay.home, "Alice", *said("a", "b"), (1.0, "i", "typed"), entries=[SENT, FIRED], **more)
    session(relay.home, "Alice", (1.0, "o", "\udcff"), b'[3.0, "o", "cut', part=2, columns=50)
    out = relay.home / "out.cast"
    assert relay("replay", "Alice", "--export", out).stdout == ""
    made = Cast(out, strict=True)
    assert (made.header.columns, made.header.rows, made.header.command) == (40, 8, "claude --model x")
    assert [(each.time, each.kind, each.data) for each in made] == [
        (0.0, "o", "a\r\n"),
        (0.5, "m", "message_sent: Bob · done now"),
        (1.0, "o", "b\r\n"),
        (1.0, "r", "50x8"),
        (1.25, "m", "hook_fired: PreToolUse · block · 1 · guard: exit 2, no rm -rf ␛[31mhere"),
        (2.0, "o", "\udcff"),
    ]
    header = json.loads(out.read_text().splitlines()[0])
    assert header["env"] == {"SHELL": "/bin/sh", "TERM": "xterm"} and header["timestamp"] == BEGAN
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert relay("replay", out).stdout == relay("replay", "Alice").stdout
    table = relay("replay", out, "--events").stdout
    assert [line.split(None, 2)[:2] for line in table.splitlines()] == [
        ["0.500", "marker"],
        ["1.250", "marker"],
    ]
    again = relay("replay", out, "--export", "-").stdout
    assert lines_of(again) == lines_of(out.read_text())


def test_export_overwrites_a_file_only_with_force_and_never_the_recording(relay: Relay) -> None:
    path = session(relay.home, "Alice", *said("a"))
    out = relay.home / "out.cast"
    out.write_text("precious")
    refused = relay("replay", "Alice", "--export", out, check=False)
    assert refused.returncode == 1 and "--force" in refused.stderr
    assert out.read_text() == "precious"
    relay("replay", "Alice", "--export", out, "--force")
    assert list(Cast(out, strict=True))
    before = path.read_bytes()
    assert relay("replay", "Alice", "--export", path, "--force", check=False).returncode == 1
    assert path.read_bytes() == before
    nowhere = relay("replay", "Alice", "--export", relay.home / "no" / "x.cast", check=False)
    assert "No such file" in nowhere.stderr


def test_json_on_its_own_is_refused(relay: Relay) -> None:
    session(relay.home, "Alice", *said("a"))
    refused = relay("replay", "Alice", "--json", check=False)
    assert refused.returncode == 2 and "--json goes with" in refused.stderr


def test_the_number_of_damaged_lines_is_reported(relay: Relay) -> None:
    session(relay.home, "Alice", *said("a"), b"junk", b"more junk", (2.0, "o", "b"))
    run = relay("replay", "Alice")
    assert run.stdout == "a\nb\n"
    assert "2 damaged lines" in run.stderr


# Permission.


def test_an_agent_replays_only_its_own_recordings(relay: Relay, tmp_path: Path) -> None:
    path = session(relay.home, "Alice", *said("hers"))
    session(relay.home, "Bob", *said("his"))
    agent = {"RELAY_NAME": "Bob", "RELAY_TEAM": "default"}
    assert relay("replay", "Bob", env=agent).stdout == "his\n"
    assert [each["name"] for each in json.loads(relay("replay", "--json", env=agent).stdout)] == ["Bob"]
    for arguments in (("Alice",), ("Bob", "-t", "other"), (path,), ("-t", "other")):
        run = relay("replay", *arguments, env=agent, check=False)
        assert run.returncode == 1 and "only its own recordings" in run.stderr, arguments
        assert "hers" not in run.stdout
    link = tmp_path / "mine.cast"
    link.symlink_to(path)
    assert relay("replay", link, env=agent, check=False).returncode == 1
    odd = path.with_name("odd.cast")
    odd.write_bytes(path.read_bytes())
    assert relay("replay", odd, env=agent, check=False).returncode == 1
    own = cast(tmp_path / "own.cast", *said("a file of its own"))
    assert relay("replay", own, env=agent).stdout == "a file of its own\n"


# Without the virtual screen.


def test_text_events_and_export_work_without_the_library(relay: Relay) -> None:
    hidden = relay.home / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import relay.terminal.libghostty as vt\n"
        "def gone():\n    raise vt.ScreenUnavailable('there is no virtual screen here.')\n"
        "vt.load = gone\n"
    )
    env = {"PYTHONPATH": os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])}
    session(relay.home, "Alice", *said("a", "b"), entries=[SENT])
    for arguments in (("--search", "a"), ("--screen", "1")):
        run = relay("replay", "Alice", *arguments, env=env, check=False)
        assert run.returncode == 1
        assert "no virtual screen here. Without" in run.stderr and "--export" in run.stderr
    assert relay("replay", "Alice", env=env).stdout == "a\nb\n"
    assert "message_sent" in relay("replay", "Alice", "--events", env=env).stdout
    assert relay("replay", "Alice", "--export", "-", env=env).stdout
