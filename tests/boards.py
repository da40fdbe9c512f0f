"""Boards of agents that do not run, for tests of what shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relay.control.board import Board, entries
from relay.control.sessions import SessionInfo
from relay.messaging.user_inbox import Item, item

NOW = 1_760_000_000.0


def agent(name: str, state: str = "ready", age: float | None = 60.0, **more: Any) -> SessionInfo:
    """Return an agent that has been in its state for `age` seconds."""
    known = {
        "team": "default", "agent": "claude", "pid": 1, "agent_pid": 2, "prompt": None, "cwd": "", "id": name,
        "socket": Path(f"/none/{name}.sock"), "bus": "connected", "terminal_pid": 3,
        "since": None if age is None else NOW - age,
    }  # fmt: skip
    return SessionInfo(name=name, state=state, **{**known, **more})


def waits(kind: str, name: str, text: str = "Why?", *, team: str = "default", read: bool = False) -> Item:
    return item(f"{kind}-{name}", kind, name, team, NOW - 60, text, int(read))


def board(*agents: SessionInfo, inbox: tuple[Item, ...] = ()) -> Board:
    return Board(tuple(entries(agents, inbox)), inbox)
