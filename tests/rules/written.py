"""Build rules, events and outputs of commands for the tests of this folder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from relay.rules.command import CommandResult
from relay.rules.event import RuleEvent
from relay.rules.rule import Rule

_lines = itertools.count(1)


def rule(event: str, command: str = "true", **more: Any) -> Rule:
    """Return a rule for `event`, named after its line unless `more` names it."""
    line = next(_lines)
    fields = {"id": str(line), "name": f"rule-{line}", "kind": "command", "shape": "flat"} | more
    return Rule(event=event, command=command, path=Path("hooks.json"), line=line, **fields)


def event(name: str, **data: Any) -> RuleEvent:
    return RuleEvent(name, {"hook_event_name": name, "session_id": "s", "cwd": "/", **data})


def output(stdout: str = "", code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult(code, stdout.encode(), stderr.encode())
