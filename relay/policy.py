"""Which tool calls the person has allowed in advance: the rules of `allow` in their own relay.toml.

    Bash(git status)     this very command
    Bash(git diff *)     a glob; what it stands for may hold nothing that a shell would act on
    Write(/src/*)        a glob; a path that climbs back out with `..` is not covered
    Read                 every call of a tool

There is none by default.  A rule speaks of what the agent's own hooks say it is about to do, never of what a
screen shows, which an agent can have drawn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from relay.errors import ConfigError

SUBJECTS = ("command", "file_path", "path", "url")
"""The inputs by which a call is known, the first that it has; else all of them as JSON."""

_RULE = re.compile(r"(?P<tool>[A-Za-z_][\w.-]*)(?:\((?P<subject>.*)\))?\Z", re.DOTALL)
_GLOB = re.compile(r"[*?\[]")
_CLASS = re.compile(r"\[.[^\]]*\]", re.DOTALL)  # what it stands for is no literal of the rule
_ACTED_ON = re.compile(r"[;&|<>$`\\\n\r(){}!#]|(?:^|(?<=/))\.\.(?=/|$)")  # by a shell, or in a path


@dataclass(frozen=True, slots=True)
class Rule:
    """`tool`, and a glob for its subject; None for any."""

    text: str
    tool: str
    subject: str | None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Raises ConfigError for what is no rule."""
        match = _RULE.match(text.strip())
        if match is None:
            raise ConfigError(f"{text!a} is no rule: write a tool, such as 'Read', or 'Bash(git status)'.")
        return cls(text, match["tool"], match["subject"])

    def covers(self, tool: str, subject: str) -> bool:
        if tool != self.tool:
            return False
        if self.subject is None or subject == self.subject:
            return True
        if _GLOB.search(self.subject) is None or not fnmatchcase(subject, self.subject):
            return False
        # What a wildcard stands for must not end one command and begin another, nor leave a folder.
        literal = len(_ACTED_ON.findall(_CLASS.sub("", self.subject)))
        return len(_ACTED_ON.findall(subject)) == literal


class Policy:
    """The rules of one session."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        """Raises ConfigError for what is no rule."""
        self._rules = tuple(Rule.parse(rule) for rule in rules)

    def allows(self, tool: str, tool_input: Mapping[str, Any]) -> str | None:
        """The rule that allows this call, as it was written; None where the person is to be asked."""
        subject = next(
            (tool_input[key] for key in SUBJECTS if isinstance(tool_input.get(key), str)),
            None,
        )
        if subject is None:
            subject = json.dumps(tool_input, sort_keys=True, default=str)
        return next((rule.text for rule in self._rules if rule.covers(tool, subject)), None)
