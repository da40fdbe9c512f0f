"""One rule of a hooks.json file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relay.rules.event import Kind
from relay.rules.matcher import EVERYTHING, Matcher

Shape = Literal["flat", "group"]
Origin = Literal["user", "project", "named"]

TIMEOUT = 60.0
"""Seconds that a command may take where its rule does not say."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. It is the same rule, with the same `id`, wherever it stands in its file.

    name:       for people, and for the heading over what it injects: its `name`, else its script's, else its
                command's first word.
    shape:      "group" as Claude Code has it, "flat" without the list around the handlers: it decides which
                payload the command gets.
    command:    for a shell; with `args` a program that is run without one. "" of a prompt.
    prompt:     the text that a prompt injects.
    timeout:    seconds. background: nobody waits for it, and its answer has no effect.
    path, line: where it stands. origin: whose file that is.
    """

    id: str
    name: str
    event: str
    kind: Kind
    shape: Shape
    path: Path
    line: int
    origin: Origin = "user"
    command: str = ""
    args: tuple[str, ...] | None = None
    prompt: str = ""
    matcher: Matcher = field(default=EVERYTHING)
    timeout: float = TIMEOUT
    background: bool = False

    @property
    def place(self) -> str:
        """`hooks.json:12`, with the whole path."""
        return f"{self.path}:{self.line}"

    @property
    def work(self) -> object:
        """What it does: rules with equal work do it once for an event."""
        return (self.shape, self.kind, self.command, self.args, self.prompt)
