"""Recordings of real agents, read from the screen with their profiles, give exactly their directives.

recordings/          120 x 40
recordings/resized/  60 and 200 columns, a resize in the middle, typed directives, tools that print them.
                     (A form's indents are as the agent draws them.)
                     aider-*: its live display failed to erase itself, and may have erased the text later.
                     *-80: several sizes, and /compact, on a slow machine.
                     qwen-0.24.4-*: a scroll bar, a page that is erased in each frame, and jumps back in it;
                     -slow: on a machine that drew one frame per second;
                     -torn: after a resize to 60 columns, a page laid out for more, cut off by its scroll bar;
                     -half: a frame whose rest arrives seconds later;
                     -stalled: nothing for seconds in the middle of a directive.
                     codex-80*: its model writes thousands of characters per second; the page moves a row.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from relay.agents import catalog
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, play
from relay.home import Home
from relay.readers.auto import AutoReader
from relay.recording.asciicast import Cast

RECORDINGS = Path(__file__).parent.parent / "recordings"
NAMES = sorted(
    str(path.relative_to(RECORDINGS)).removesuffix(".expected.json")
    for path in RECORDINGS.rglob("*.expected.json")
)


def recording(name: str, folder: Path) -> Path:
    """Return the asciicast with that name, unpacked in `folder` if it is compressed."""
    path = RECORDINGS / f"{name}.cast"
    if path.exists():
        return path
    unpacked = folder / path.name
    unpacked.write_bytes(gzip.decompress(path.with_suffix(".cast.gz").read_bytes()))
    return unpacked


def directives_in(path: Path, agent: str, home: Home) -> list[list[str]]:
    cast = Cast(path, strict=True)
    chosen = catalog.load(agent, home)
    reader = AutoReader(
        cast.header.columns,
        cast.header.rows,
        kind="screen",
        echo_style=chosen.echo,
        block_end=chosen.block_end,
        settle=chosen.settle,
        code_style=chosen.code,
    )
    grammar = Grammar.of_terminal({"relay"}.__contains__, chosen, prefix="@")
    pipeline = OutputPipeline(reader, grammar)
    found = [one for reading in play(cast, pipeline) for one in reading.directives]
    places = [one.place for one in found]
    assert all(a < b for a, b in pairwise(places))
    return [[one.namespace, one.target, one.body] for one in found]


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_directives_of_a_recording_are_found(name: str, tmp_path: Path) -> None:
    """R46, R98. It may also find what no reader of the screen can decide (`undecidable`)."""
    path = recording(name, tmp_path)
    expected = json.loads((RECORDINGS / f"{name}.expected.json").read_text("utf-8"))
    undecidable = {line.removeprefix("\\") for line in expected["undecidable"]}
    home = Home.from_env({"RELAY_HOME": str(tmp_path)})
    found = directives_in(path, expected["agent"].removesuffix("-inline"), home)
    certain = [one for one in found if f"@{one[0]}:{one[1]} {one[2]}" not in undecidable]
    assert certain == expected["directives"]
    assert len(found) - len(certain) <= len(expected["undecidable"])
