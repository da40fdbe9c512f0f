"""Exports a recording as one clean asciicast: its parts joined, its moments as markers.

Output and sizes stay as they are; input and damaged lines are left out. asciinema shows markers (kind "m") on
its timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from relay.dataclass import replace
from relay.recording.asciicast import Cast, CastEvent
from relay.replay.timeline import Timeline


def export(cast: Cast, timeline: Timeline) -> Iterator[bytes]:
    env = {name: cast.header.env[name] for name in ("SHELL", "TERM") if name in cast.header.env}
    yield replace(cast.header, env=env, idle_limit=None, part=0).line()
    events = (event for event in cast if event.kind in {"o", "r"})
    markers = (CastEvent(each.at, "m", each.label) for each in timeline.moments)
    for event in merge(events, markers, key=lambda event: event.time):
        yield event.line()
