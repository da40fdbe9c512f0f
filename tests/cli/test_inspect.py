"""`relay inspect`: the directives and states that relay finds in a recording or a screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Relay

RECORDINGS = Path(__file__).parent.parent / "recordings"


def cast(path: Path, *events: object, header: object = None) -> Path:
    head = {"version": 2, "width": 60, "height": 12} if header is None else header
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *events)))
    return path


def inspect(relay: Relay, path: Path, *options: str) -> list[dict[str, object]]:
    answer = json.loads(relay("inspect", "--json", *options, path).stdout)
    directives: list[dict[str, object]] = answer["directives"]
    return directives


@pytest.mark.parametrize("agent", ["aider", "claude"])  # tests/readers/test_recordings.py reads all of them
def test_every_directive_in_a_real_agents_recording_is_found_once(agent: str, relay: Relay) -> None:
    """The readers may also find what the screen cannot decide (a fence or an escape that was not drawn)."""
    expected = json.loads((RECORDINGS / f"{agent}.expected.json").read_text())
    undecidable = {line.removeprefix("\\") for line in expected["undecidable"]}
    found = inspect(relay, RECORDINGS / f"{agent}.cast")
    directives = [[one["namespace"], one["target"], one["body"]] for one in found]
    certain = [one for one in directives if f"@{one[0]}:{one[1]} {one[2]}" not in undecidable]
    assert certain == expected["directives"]
    assert len(directives) - len(certain) <= len(undecidable)
    times = [one["time"] for one in found]
    assert times == sorted(times)  # type: ignore[type-var]


def test_without_json_each_directive_is_one_line(relay: Relay, tmp_path: Path) -> None:
    path = cast(
        tmp_path / "a.cast", [0.5, "o", "@relay:Bob hi\r\n@memory:save a\u202eb\r\n@relay:Al <<<\r\nx\r\n"]
    )
    lines = relay("inspect", path).stdout.splitlines()
    assert [line for line in lines if ": " not in line[:24]] == [
        "    0.500  @relay:Bob hi",
        "    0.500  @memory:save a<U+202E>b",
        "    0.500  @relay:Al x  (never ended)",
        "3 directives (profile generic)",
    ]


def test_echoed_input_is_not_a_directive(relay: Relay, tmp_path: Path) -> None:
    line = "@relay:Bob hi"
    path = cast(
        tmp_path / "a.cast", [1, "i", f"{line}\r"], [1.1, "o", f"{line}\r\n"], [2, "o", f"{line}\r\n"]
    )
    assert [one["time"] for one in inspect(relay, path)] == [2]


def test_a_directive_on_an_idle_screen_is_found_soon_after_a_resize(relay: Relay, tmp_path: Path) -> None:
    drawn = "\x1b[2J\x1b[5;1H@relay:Bob hi\x1b[11;1Hstatus\x1b[12;1H> "
    path = cast(tmp_path / "a.cast", [1, "o", drawn], [1.1, "r", "50x12"], [60, "o", "x"])
    [one] = inspect(relay, path)
    assert 1.2 < one["time"] < 5  # type: ignore[operator]


def test_the_agents_profile_decides_the_prefix(relay: Relay, tmp_path: Path) -> None:
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "bang.toml").write_text('name = "bang"\nprefix = "!"\ncommands = ["bang"]\n')
    events = [[1, "o", "@relay:Bob hi\r\n!relay:Ann ho\r\n"]]
    path = cast(tmp_path / "a.cast", *events)
    assert [one["target"] for one in inspect(relay, path)] == ["Bob"]
    assert [one["target"] for one in inspect(relay, path, "--agent", "bang")] == ["Ann"]
    header = {"version": 2, "width": 60, "height": 12, "command": "/usr/bin/bang --fast"}
    assert [one["target"] for one in inspect(relay, cast(path, *events, header=header))] == ["Ann"]
    assert "unknown agent profile 'nope'" in relay("inspect", "--agent", "nope", path, check=False).stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", ":1: this is not a recording"),
        (b"", ":1: this is not a recording"),
        (b"\x00\xff\xfe", ":1: this is not a recording"),
        (b"[]\n", ":1: this is not a recording"),
        (b'{"version": 2}\n', ":1: this is not a recording"),
        (b'{"version": 2, "width": 0, "height": 5}\n', ":1: this is not a recording"),
        (b'{"version": 4, "term": {"cols": 80, "rows": 24}}\n', ":1: this is asciicast version 4"),
        (
            b'{"version": 2, "width": 9, "height": 9}\noops\n[0.2, "o", "b"]\n',
            ":2: this line is not a JSON list",
        ),
        (b'{"version": 2, "width": 9, "height": 9}\n["x"]\n', ":2: this is not an event"),
        (b'{"version": 2, "width": 9, "height": 9}\n[1, "r", "wide"]\n', ":2: 'wide' is not a size"),
    ],
)
def test_an_invalid_recording_is_reported_with_the_line(
    content: bytes, message: str, relay: Relay, tmp_path: Path
) -> None:
    path = tmp_path / "a.cast"
    path.write_bytes(content)
    done = relay("inspect", path, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"relay: {path}{message}")
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_reported(relay: Relay, tmp_path: Path) -> None:
    done = relay("inspect", tmp_path / "none.cast", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No such file" in done.stderr


def test_the_states_in_a_recording_are_listed(relay: Relay) -> None:
    """R96: each state has its start time, and the rule and the lines that decided it."""
    answer = json.loads(relay("inspect", "--json", RECORDINGS / "claude.cast").stdout)
    expected = json.loads((RECORDINGS / "claude.expected.json").read_text())["states"]
    for time, state in expected:
        assert [one["state"] for one in answer["states"] if one["time"] <= time][-1] == state
    asked = next(one for one in answer["states"] if one["state"] == "prompting")
    assert (asked["prompt"], asked["rule"]) == ("permission", "permission dialog")
    assert asked["lines"][-1].startswith("Esc to cancel")
    assert all(one["prompt"] is None for one in answer["states"] if one["state"] != "prompting")


DIALOG = " Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel · Tab to amend\n"
INPUT = f"{'─' * 40}\n❯ \n{'─' * 40}\n  ? for shortcuts\n"


@pytest.mark.parametrize(
    ("text", "state", "prompt", "rule"),
    [
        (DIALOG, "prompting", "permission", "permission dialog"),
        (INPUT, "ready", None, "empty input"),
        (f"# title: ⠂ Fixing\n{INPUT}", "working", None, "title with a spinner"),
        ("● Something else\n", "working", None, ""),
        ("", "working", None, ""),
    ],
)
def test_the_state_on_a_screen_is_detected(
    text: str, state: str, prompt: str | None, rule: str, relay: Relay, tmp_path: Path
) -> None:
    path = tmp_path / "screen.txt"
    path.write_text(text)
    answer = json.loads(relay("inspect", "--screen", path, "--agent", "claude", "--json").stdout)
    assert (answer["state"], answer["prompt"], answer["rule"]) == (state, prompt, rule)
    assert bool(answer["lines"]) is bool(rule)
    assert set(answer) == {"state", "prompt", "rule", "lines"}


def test_without_json_the_state_on_a_screen_is_explained(relay: Relay) -> None:
    output = relay("inspect", "--screen", "-", "--agent", "claude", input=DIALOG).stdout
    assert output.startswith("prompting (permission): it shows a dialog") and "'permission dialog'" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a RECORDING or --screen"),
        (["--screen", "a.txt", "b.cast"], "give either a RECORDING or --screen"),
        (["--screen", "none.txt"], "add --agent PROFILE"),
        (["--screen", "none.txt", "--agent", "claude"], "cannot read the screen none.txt"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: list[str], message: str, relay: Relay) -> None:
    done = relay("inspect", *arguments, check=False)
    assert done.returncode != 0
    assert message in done.stderr and "Traceback" not in done.stderr
