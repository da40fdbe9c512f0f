"""Codex: `-c hooks...` flags, each with the hash that makes our entries, and no others, trusted.

Codex skips hooks that nobody has reviewed.  Its flag to skip the review would let the project's and the
user's unreviewed hooks run, too; so each entry of ours comes with the record that a review would have left,
as `hooks.state` for this run.  Should a later version hash differently, it asks its person for a review.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from relay.agents.hook_setup import Prepared, Run, rules

_SOURCE = "/<session-flags>/config.toml"
"""What Codex calls the file that a run's flags would be."""

_LAST = 3
"""Seconds that Codex allows a SessionEnd hook; an entry with more is not the one that was hashed."""


def prepare(run: Run) -> Prepared:
    """`codex ARG...` as `codex -c hooks.EVENT=... -c hooks.state=... ARG...`."""
    flags: list[str] = []
    trusted: dict[str, Any] = {}
    for event, groups in rules("codex", run.socket).items():
        for group in groups if event == "SessionEnd" else ():
            group["hooks"][0]["timeout"] = _LAST
        flags += ["-c", f"hooks.{event}={_toml(groups)}"]
        label = _label(event)
        for place, group in enumerate(groups):
            trusted[f"{_SOURCE}:{label}:{place}:0"] = {"trusted_hash": _hash(label, group)}
    return Prepared(
        run.with_flags([*flags, "-c", f"hooks.state={_toml(trusted)}"], run.arguments), run.env, "codex"
    )


def _label(event: str) -> str:
    """`PreToolUse` as `pre_tool_use`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


def _hash(label: str, group: dict[str, Any]) -> str:
    """The hash of an entry with one handler, as Codex records it (codex-rs/hooks, engine/discovery.rs)."""
    handlers = [{"async": False, **handler} for handler in group["hooks"]]
    identity = {**group, "event_name": label, "hooks": handlers}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _toml(value: Any) -> str:
    """`value` as TOML on one line; its strings are JSON's where they hold no control characters."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}={_toml(each)}" for key, each in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
