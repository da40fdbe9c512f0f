"""One clean asciicast (version 2) of a recording: its parts joined, its moments as markers.

What the terminal was sent stays as it is, sizes too; what was typed is left out, as are lines that are no
events.  asciinema shows markers (kind "m") on its time line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import merge

from relay.recording import Happening
from relay.replay.tape import Tape
from relay.replay.timeline import Timeline

_KEPT_KINDS = frozenset({"o", "r"})
_KEPT_ENVIRONMENT = ("SHELL", "TERM")


def cast(tape: Tape, timeline: Timeline) -> Iterator[str]:
    """The lines of the asciicast, each with its newline."""
    yield _header(tape)
    events = (event for event in tape.reader() if event.kind in _KEPT_KINDS)
    markers = (Happening(each.at, "m", each.label) for each in timeline.moments)
    for event in merge(events, markers, key=lambda event: event.time):
        yield json.dumps([round(event.time, 6), event.kind, event.data]) + "\n"


def _header(tape: Tape) -> str:
    source = tape.parts[0].header
    header: dict[str, object] = {"version": 2, "width": tape.columns, "height": tape.rows}
    timestamp, environment = source.get("timestamp"), source.get("env")
    if isinstance(timestamp, (int, float)):
        header["timestamp"] = int(timestamp)
    header |= {name: source[name] for name in ("command", "title") if isinstance(source.get(name), str)}
    if isinstance(environment, dict):
        kept = {
            name: environment[name] for name in _KEPT_ENVIRONMENT if isinstance(environment.get(name), str)
        }
        header |= {"env": kept} if kept else {}
    return json.dumps(header) + "\n"
