"""Tool calls that the user has allowed in advance: the rules of `allow` in their own relay.toml.

    Bash(git status)     exactly this command
    Bash(git diff *)     a glob; its wildcard matches no character that a shell acts on
    Write(/src/*)        a glob; a path that climbs back out with `..` does not match
    Read                 every call of a tool

By default there are no rules.  They apply to calls that the agent's own hooks announce, never to calls on the
screen, which an agent can fake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from relay.dataclass import dataclass
from relay.errors import ConfigError

SUBJECTS = ("command", "file_path", "path", "url")
"""The inputs that a glob must match: each that a call has; if it has none, all its inputs as JSON."""

_RULE = re.compile(r"(?P<tool>[A-Za-z_][\w.-]*)(?:\((?P<subject>.*)\))?\Z", re.DOTALL)
_GLOB = re.compile(r"[*?\[]")
_CLASS = re.compile(r"\[.[^\]]*\]", re.DOTALL)  # a character class
_ACTED_ON = re.compile(r"[;&|<>$`\\\n\r(){}!#]|(?:^|(?<=/))\.\.(?=/|$)")  # by a shell, or in a path


@dataclass(frozen=True, slots=True)
class AllowRule:
    """A tool and a glob for the subject of its calls (None: every call). text: as the user wrote it."""

    text: str
    tool: str
    subject: str | None

    @classmethod
    def parse(cls, text: str) -> AllowRule:
        """Return the rule in `text`. Raise ConfigError if it is not a rule."""
        match = _RULE.match(text.strip())
        if match is None:
            raise ConfigError(f"{text!r} is not a rule: write a tool, such as 'Read' or 'Bash(git status)'.")
        return cls(text, match["tool"], match["subject"])

    def covers(self, tool: str, subject: str) -> bool:
        if tool != self.tool:
            return False
        if self.subject is None or subject == self.subject:
            return True
        if _GLOB.search(self.subject) is None or not fnmatchcase(subject, self.subject):
            return False
        # A wildcard must match neither the end of a command nor a way out of a folder.
        literal = len(_ACTED_ON.findall(_CLASS.sub("", self.subject)))
        return len(_ACTED_ON.findall(subject)) == literal


class Policy:
    """The rules of one session. Raise ConfigError for a malformed rule."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self._rules = tuple(AllowRule.parse(rule) for rule in rules)

    def allows(self, tool: str, tool_input: Mapping[str, Any]) -> str | None:
        """Return the rule that allows this call, as the user wrote it; None if the user must be asked."""
        given = [tool_input[key] for key in SUBJECTS if tool_input.get(key) is not None]
        subjects = [
            value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
            for value in given or [tool_input]
        ]
        for rule in self._rules:
            if all(rule.covers(tool, subject) for subject in subjects):
                return rule.text
        return None
