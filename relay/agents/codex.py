"""Codex' hook set-up: `-c hooks...` flags, with the hashes that make our entries, and no others, trusted.

Codex skips hooks that were not reviewed.  Its flag to skip the review would also run unreviewed hooks of the
project and the user; so each of our entries comes with the record of a review, in `hooks.state`.  A later
version that hashes differently asks its user for a review.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from relay.agents.hook_setup import Prepared, Run, entries

_SOURCE = "/<session-flags>/config.toml"
"""Codex' name for the file that a run's flags stand for."""

_LAST = 3
"""Seconds that Codex allows a SessionEnd hook; an entry with more has another hash than the recorded one."""


def prepare(run: Run) -> Prepared:
    """Return `codex ARG...` as `codex -c hooks.EVENT=... -c hooks.state=... ARG...`."""
    flags: list[str] = []
    trusted: dict[str, Any] = {}
    for event, groups in entries("codex", run.directory).items():
        for group in groups if event == "SessionEnd" else ():
            group["hooks"][0]["timeout"] = _LAST
        flags += ["-c", f"hooks.{event}={_toml(groups)}"]
        label = _label(event)
        for place, group in enumerate(groups):
            trusted[f"{_SOURCE}:{label}:{place}:0"] = {"trusted_hash": _hash(label, group)}
    flags += ["-c", f"hooks.state={_toml(trusted)}"]
    return Prepared(run.with_flags(flags, run.arguments), run.env, "codex")


def _label(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()  # pre_tool_use


def _hash(label: str, group: dict[str, Any]) -> str:
    """Return the hash of an entry, as Codex records it (codex-rs/hooks, engine/discovery.rs)."""
    handlers = [{"async": False, **handler} for handler in group["hooks"]]
    identity = {**group, "event_name": label, "hooks": handlers}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _toml(value: Any) -> str:
    """Return `value` as TOML on one line; strings are JSON's, which is valid without control characters."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}={_toml(each)}" for key, each in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
