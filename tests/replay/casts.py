"""Recordings for tests, in the formats of relay and asciinema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from relay.recording import store

BEGAN = 1_760_000_000
"""When a test's session began, in seconds since the epoch."""


def cast(
    path: Path,
    *events: tuple[float, str, str] | bytes,
    columns: int = 40,
    rows: int = 8,
    entries: Iterable[Mapping[str, Any]] = (),
    **header: Any,
) -> Path:
    """Write an asciicast, and the journal's entries, if any, next to it. Bytes are a literal line."""
    head = {"version": 2, "width": columns, "height": rows, **header}
    lines = [json.dumps(head).encode()]
    lines += [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")
    if entries:
        text = "".join(json.dumps({"time": 0, "session": "s", **entry}) + "\n" for entry in entries)
        store.events_of(path).write_text(text)
    return path


def session(
    home: Path,
    name: str,
    *events: tuple[float, str, str] | bytes,
    id: str = "5e551017",
    team: str = "default",
    began: float = BEGAN,
    part: int = 1,
    **more: Any,
) -> Path:
    """Write a recording into the store of the relay home `home`."""
    path = store.path_of(home / "state" / "recordings", team, name, id, began, part)
    about = {"team": team, "name": name, "session": id, "part": part}
    return cast(path, *events, relay=about, **{"command": "claude --model x", **more})


def said(*texts: str, every: float = 1.0) -> list[tuple[float, str, str]]:
    """Return one line of output per text, every `every` seconds from 0."""
    return [(number * every, "o", f"{text}\r\n") for number, text in enumerate(texts)]
