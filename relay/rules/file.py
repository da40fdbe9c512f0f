"""One hooks.json: the rules in it, in both shapes, and warnings about what is not taken.

    {"hooks": {"PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "..."}]},      a group, as in Claude Code
        {"type": "command", "command": "...", "matcher": {"tool_name": "Bash"}}     a flat rule
    ]}}

A rule with a mistake is left out, with a warning that names the line; the others are in force.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from relay.names import suggest
from relay.rules import located
from relay.rules.event import EVENTS, EventType, Kind
from relay.rules.located import Node
from relay.rules.matcher import BadMatcher, Matcher, matcher
from relay.rules.rule import TIMEOUT, Origin, Rule, Shape
from relay.rules.warning import RuleWarning
from relay.text import one_line

LARGEST = 1 << 20
"""Bytes of a file; rules for all that one could think of have less."""

LONGEST_TIMEOUT = 86_400.0
"""Seconds, a day: what is more was meant as something else."""

LONGEST_COMMAND = (128 << 10) - 1
"""Bytes of one argument of a program on Linux (MAX_ARG_STRLEN of execve(2), its final NUL not counted)."""

_CLAUDES = frozenset(
    {
        *("PermissionRequest", "PermissionDenied", "PostToolBatch", "SubagentStart", "SubagentStop"),
        *("StopFailure", "PostCompact", "Setup", "UserPromptExpansion", "InstructionsLoaded"),
        *("MessageDisplay", "ConfigChange", "CwdChanged", "FileChanged", "TaskCreated", "TaskCompleted"),
        *("TeammateIdle", "WorktreeCreate", "WorktreeRemove", "Elicitation", "ElicitationResult"),
    }
)
"""Claude Code's events that relay runs no rules for."""

SURE = 0.8
"""How alike two keys are if one was probably meant by the other: "mather" is, "comment" is no "command"."""

_NOT_RUN = frozenset({"http", "agent", "mcp_tool"})
_FIELDS = ("type", "command", "prompt", "matcher", "timeout", "args", "async", "name")
_INTERPRETER = re.compile(r"(?:python[\d.]*|node|ruby|perl|bash|sh|zsh|dash|deno|bun|php|osascript)\Z")
_CODE = frozenset({"-c", "-lc", "-ec", "-e"})
_LAUNCHERS = frozenset({"env", "exec", "command", "nohup", "nice", "time", "npx", "uvx"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class _Skip(Exception):
    """A rule is left out; the text says why, and what to do."""


def parse(path: Path, content: bytes, origin: Origin) -> tuple[list[Rule], list[RuleWarning]]:
    """The rules of the file `path`, which holds `content`, in their order, and what is wrong with it."""
    file = _File(path, origin)
    file.read(content)
    return file.rules, file.warnings


@dataclass(slots=True)
class _File:
    path: Path
    origin: Origin
    rules: list[Rule] = field(default_factory=list)
    warnings: list[RuleWarning] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)

    def read(self, content: bytes) -> None:
        if len(content) > LARGEST:
            self._unread(
                f"it has more than {LARGEST >> 20} MB and is not read. Write fewer or shorter rules."
            )
            return
        try:
            root = located.parse(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            self._unread(f"it is not UTF-8 (byte {error.start + 1}) and is not read. Save it as UTF-8.")
            return
        except json.JSONDecodeError as error:
            what = error.msg[0].lower() + error.msg[1:]
            self._unread(
                f"it is not JSON: {what} (column {error.colno}). Nothing of it is read.", error.lineno
            )
            return
        hooks = root.value.get("hooks") if isinstance(root.value, dict) else None
        if hooks is None or not isinstance(hooks.value, dict):
            tell = self._warn if _emptied(root) else self._unread
            tell(
                'it has no rules: write {"hooks": {"PreToolUse": [...]}}.', hooks.line if hooks else root.line
            )
            return
        self._repeated(root)
        switch = root.value.get("disableAllHooks")
        if switch is not None and switch.value is True:
            self._warn("it says disableAllHooks, and none of its rules is in force.", switch.line)
            return
        self._repeated(hooks)
        for name, entries in hooks.value.items():
            self._event(name, entries)

    def _event(self, name: str, entries: Node) -> None:
        event = EVENTS.get(name)
        if event is None:
            self._unknown_event(name, entries.line)
            return
        for entry in _listed(entries):
            if not isinstance(entry.value, dict):
                self._warn(f"a rule is an object, not {_shown(entry)}. Skipped.", entry.line, name)
                continue
            self._repeated(entry, name)
            handlers = _handlers(entry)
            if handlers is None:
                self._rule(event, entry, "flat", entry.value.get("matcher"))
                continue
            for handler in handlers:
                if not isinstance(handler.value, dict):
                    self._warn(f"a handler is an object, not {_shown(handler)}. Skipped.", handler.line, name)
                    continue
                self._repeated(handler, name)
                if "matcher" in handler.value:
                    self._warn(
                        "the matcher within hooks has no effect: it belongs beside hooks.", handler.line, name
                    )
                self._rule(event, handler, "group", entry.value.get("matcher"))

    def _unknown_event(self, name: str, line: int) -> None:
        allowed = f"The events are {', '.join(EVENTS)}."
        if name in _CLAUDES:
            self._warn(f"relay runs no rules for this event of Claude Code's. Skipped. {allowed}", line, name)
            return
        meant = suggest(name, EVENTS)
        hint = f"Did you mean {meant}? " if meant else ""
        self._warn(f"there is no such event. Skipped. {hint}{allowed}", line, one_line(ascii(name), 60))

    def _rule(self, event: EventType, node: Node, shape: Shape, matched: Node | None) -> None:
        try:
            kind = _kind(event, node, shape)
            found = _matcher(event, matched)
            for key, why in _REFUSED.items():
                if key in node.value:
                    raise _Skip(why)
            command = _text(node, "command", _FIELDS) if kind == "command" else ""
            prompt = _text(node, "prompt", _FIELDS) if kind == "prompt" else ""
            args = _args(node) if kind == "command" else None
        except _Skip as skip:
            self._warn(f"{skip} Skipped.", node.line, event.name)
            return
        if matched is not None and isinstance(matched.value, str) and matched.value and not event.matched:
            self._warn(
                f"the matcher {_shown(matched)} has no effect: this event has nothing that it could match.",
                matched.line,
                event.name,
            )
        if "once" in node.value:
            self._warn("once has no effect: the rule runs every time.", node.value["once"].line, event.name)
        rule = Rule(
            id="",
            name=self._name(node, event) or _called(command, args),
            event=event.name,
            kind=kind,
            shape=shape,
            path=self.path,
            line=node.line,
            origin=self.origin,
            command=command,
            args=args,
            prompt=prompt,
            matcher=found,
            timeout=self._timeout(node, event),
            background=kind == "command" and self._flag(node, "async", event),
        )
        self.rules.append(replace(rule, id=self._id(rule)))

    def _id(self, rule: Rule) -> str:
        parts = [str(rule.path), rule.event, str(rule.matcher), rule.work]
        base = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
        count = self._ids[base] = self._ids.get(base, 0) + 1
        return base if count == 1 else f"{base}-{count}"

    def _timeout(self, node: Node, event: EventType) -> float:
        given = node.value.get("timeout")
        if given is None or given.value is None:
            return TIMEOUT
        value = given.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_TIMEOUT:
            self._warn(
                f"timeout is {_shown(given)}; write seconds, more than 0 and at most {LONGEST_TIMEOUT:.0f}. "
                f"{TIMEOUT:g} are taken.",
                given.line,
                event.name,
            )
            return TIMEOUT
        return float(value)

    def _flag(self, node: Node, key: str, event: EventType) -> bool:
        given = node.value.get(key)
        if given is None or isinstance(given.value, bool):
            return given is not None and given.value
        self._warn(f"{key} is {_shown(given)}; write true or false. false is taken.", given.line, event.name)
        return False

    def _name(self, node: Node, event: EventType) -> str:
        given = node.value.get("name")
        if given is None:
            return ""
        if isinstance(given.value, str) and given.value.strip():
            return one_line(given.value.strip(), 60)
        self._warn(f"name is {_shown(given)}; write a string.", given.line, event.name)
        return ""

    def _repeated(self, node: Node, event: str = "") -> None:
        for key in dict.fromkeys(node.repeated):
            self._warn(
                f"{_quoted(key)} stands here more than once, and the last one counts.", node.line, event
            )

    def _unread(self, text: str, line: int = 0) -> None:
        self.warnings.append(RuleWarning(self.path, text, line, unread=True))

    def _warn(self, text: str, line: int = 0, event: str = "") -> None:
        self.warnings.append(RuleWarning(self.path, text, line, event))


_REFUSED = {
    "if": "relay cannot check the condition of `if`. Write a matcher instead.",
    "shell": "commands are run by sh, and `shell` cannot be chosen. Call the other shell in the command.",
}
"""Fields of Claude Code's without which a rule would be another one, and what to do."""


def _kind(event: EventType, node: Node, shape: Shape) -> Kind:
    given = node.value.get("type")
    allowed = f"Allowed for {event.name}: {', '.join(sorted(event.kinds))}."
    if given is None:
        raise _Skip(f"the rule has no type. {allowed}")
    if not isinstance(given.value, str):
        raise _Skip(f"type is {_shown(given)}. {allowed}")
    if given.value in _NOT_RUN:
        raise _Skip(f"relay does not run rules of the type {given.value!r}. {allowed}")
    if given.value not in get_args(Kind):
        meant = suggest(given.value, get_args(Kind))
        raise _Skip(f"type is {_shown(given)}. {f'Did you mean {meant}? ' if meant else ''}{allowed}")
    if shape == "group" and given.value == "prompt":
        raise _Skip(
            "a prompt in a group asks a model, which relay does not. For literal text write a flat rule, "
            "without the hooks around it, of UserPromptSubmit."
        )
    for kind in event.kinds:
        if kind == given.value:
            return kind
    raise _Skip(f"rules of the type {given.value!r} are not for {event.name}. {allowed}")


def _matcher(event: EventType, node: Node | None) -> Matcher:
    try:
        return matcher(None if node is None else node.plain(), event)
    except BadMatcher as error:
        raise _Skip(str(error)) from None


def _text(node: Node, key: str, known: Iterable[str]) -> str:
    """The command or the prompt."""
    given = node.value.get(key)
    if given is None or given.value == "":
        meant = next((other for other in node.value if other not in known and suggest(other, [key])), None)
        hint = f" Did you mean it by {_quoted(meant)}?" if meant else ""
        raise _Skip(f"the {key} is missing.{hint} Write it as {_quoted(key)}, a string.")
    if not isinstance(given.value, str) or not given.value.strip():
        raise _Skip(f"{key} is {_shown(given)}; write a string.")
    _check(key, given.value, argument=key == "command")
    return given.value


def _args(node: Node) -> tuple[str, ...] | None:
    given = node.value.get("args")
    if given is None or given.value is None:
        return None
    words = given.plain()
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _Skip(f"args is {_shown(given)}; write a list of strings.")
    for word in words:
        _check("args", word, argument=True)
    return tuple(words)


def _check(key: str, text: str, *, argument: bool) -> None:
    """What no program can be given."""
    if argument and "\0" in text:
        raise _Skip(f"{key} holds a NUL character. Take it out.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _Skip(f"{key} holds half a character ({error.object[error.start]!a}). Take it out.") from None
    if argument and size > LONGEST_COMMAND:
        raise _Skip(
            f"{key} has {size} bytes, and a program can be given {LONGEST_COMMAND}. Make it a script."
        )


def _called(command: str, args: tuple[str, ...] | None) -> str:
    """The name of a rule's script, else of its program: guard.py of `python3 "$DIR"/guard.py -x`."""
    if not command:
        return "prompt"
    words = _first_words(command) if args is None else [command, *args]
    while len(words) > 1 and (_ASSIGNMENT.match(words[0]) or _basename(words[0]) in _LAUNCHERS):
        words = words[1:]
    name = _basename(words[0]) if words else command
    if not _INTERPRETER.match(name):
        return name
    for option, following in zip(words[1:], [*words[2:], ""], strict=True):
        if option == "-m" and following:
            return _basename(following)
        if option in _CODE:
            return name
        if not option.startswith("-"):
            return _basename(option)
    return name


def _first_words(command: str) -> list[str]:
    """The words of a shell's first simple command, their quotes gone."""
    words = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>")
    words.whitespace_split, words.commenters = True, ""
    found = []
    try:
        for word in words:
            if not word.strip(";&|()<>"):
                break
            found.append(word)
    except ValueError:  # a quote that is not closed; a shell will say so
        return found or command.split()
    return found


def _basename(word: str) -> str:
    return one_line(word.rstrip("/").rpartition("/")[2] or word, 60)


def _emptied(root: Node) -> bool:
    """Whether a file without rules is meant so: whoever has put them in a wrong place meant to have some."""
    if not isinstance(root.value, dict):
        return False
    hooks = root.value.get("hooks")
    return not (hooks and hooks.value) and not any(
        key in EVENTS or suggest(key, ["hooks"], SURE) for key in root.value if key != "hooks"
    )


def _handlers(entry: Node) -> list[Node] | None:
    """The handlers of a group; None of a flat rule."""
    hooks = entry.value.get("hooks")
    if hooks is None or not isinstance(hooks.value, list | dict):
        return None
    if isinstance(hooks.value, dict) and "type" in entry.value:
        return None
    return _listed(hooks)


def _listed(node: Node) -> list[Node]:
    """The items of a list; anything else is the only item of one."""
    return node.value if isinstance(node.value, list) else [node]


def _shown(node: Node) -> str:
    value = node.plain()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return one_line(json.dumps(value), 60)


def _quoted(text: str) -> str:
    return one_line(json.dumps(text), 60)
