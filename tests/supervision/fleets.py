"""Short fleet files, and the mistakes that relay reports in them."""

from __future__ import annotations

from pathlib import Path

from relay.errors import ConfigMistakes
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.fleet_file import parse

LEAD = '[agents.Lead]\nrun = "claude"\n'


def read(folder: Path, text: str) -> Fleet:
    return parse(folder / "relay.toml", text.encode())


def lead(folder: Path, keys: str, before: str = "") -> FleetAgent:
    """Return the agent with these keys, after the text `before`."""
    return read(folder, f"{before}\n{LEAD}{keys}\n").agents["Lead"]


def mistakes(folder: Path, text: str) -> list[str]:
    """Return the mistakes in `text` as `LINE: MESSAGE`, [] for none."""
    try:
        read(folder, text)
    except ConfigMistakes as error:
        path = f"{folder / 'relay.toml'}:"
        assert all(str(each).startswith(path) for each in error.mistakes)
        assert all(str(each) in str(error) for each in error.mistakes)
        return [str(each).removeprefix(path) for each in error.mistakes]
    return []
