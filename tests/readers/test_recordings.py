"""Recordings of real agents, read by the screen with their own profiles: exactly what they told, in order.

recordings/          120 x 40
recordings/resized/  60 and 200 columns, another size in the middle, typed directives, tools that print them.
                     (A form's indents are as the agent draws them.)
                     aider-*: its live display failed to erase itself, and may have erased the text later.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay import recording
from relay.agents import catalog
from relay.directives.grammar import DECORATION, Grammar
from relay.home import Home
from relay.readers.auto import AutoReader
from relay.readers.line import Line

RECORDINGS = Path(__file__).parent.parent / "recordings"
NAMES = sorted(str(path.relative_to(RECORDINGS).with_suffix("")) for path in RECORDINGS.rglob("*.cast"))
TICK = 0.02


def told(path: Path, agent: str, home: Home) -> list[list[str]]:
    recorded = recording.read(path)
    chosen = catalog.load(agent, home)
    reader = AutoReader(
        recorded.columns, recorded.rows, kind="screen", echo_style=chosen.echo, code_style=chosen.code
    )
    decoration = DECORATION if chosen.decoration is None else chosen.decoration.pattern
    grammar = Grammar({"relay"}.__contains__, decoration=decoration)
    lines: list[Line] = []
    now = 0.0
    for event in recorded.events:
        while reader.settling and now + TICK < event.time:
            now += TICK
            lines += reader.tick(now)
        now = event.time
        match event.kind:
            case "o":
                lines += reader.feed(event.bytes, now)
            case "i":
                reader.typed(event.bytes, now, echo=True)
            case "r":
                lines += reader.resize(*event.size, now)
    lines += reader.close(now)
    found = [one for line in lines for one in grammar.line(line)] + grammar.turn_end(now)
    return [[one.namespace, one.target, one.body] for one in found]


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_with_the_agents_profile_finds_exactly_what_was_told(name: str, tmp_path: Path) -> None:
    """R46, R98. What no reader of the screen can tell (`undecidable`) may be found too."""
    path = RECORDINGS / f"{name}.cast"
    expected = json.loads(path.with_suffix(".expected.json").read_text("utf-8"))
    undecidable = {line.removeprefix("\\") for line in expected["undecidable"]}
    home = Home.from_env({"RELAY_HOME": str(tmp_path)})
    found = told(path, expected["agent"].removesuffix("-inline"), home)
    certain = [one for one in found if f"@{one[0]}:{one[1]} {one[2]}" not in undecidable]
    assert certain == expected["directives"]
    assert len(found) - len(certain) <= len(undecidable)
