"""One hooks.json: the rules in it, in both shapes, and warnings about its mistakes.

    {"hooks": {"PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "..."}]},      a group, as in Claude Code
        {"type": "command", "command": "...", "matcher": {"tool_name": "Bash"}}     a flat rule
    ]}}

A rule with a mistake is skipped, with a warning that names the line; the others are in force.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import get_args

from relay.dataclass import dataclass, field, replace
from relay.names import did_you_mean, suggest
from relay.rules import json_positions
from relay.rules.engine import DEADLINE
from relay.rules.event import EVENTS, EventType, RuleKind, Shape
from relay.rules.json_positions import Node
from relay.rules.matcher import BadMatcher, condition_doubts, doubts, matcher, with_condition
from relay.rules.rule import NAME_LENGTH, TIMEOUT, Origin, Rule, RuleWarning, default_name
from relay.text import one_line

LARGEST = 1 << 20
"""Maximum size of a file in bytes; any sensible set of rules is smaller."""

LONGEST_TIMEOUT = 86_400.0
"""Maximum timeout in seconds, a day: a larger number was meant as something else."""

_LONGEST_COMMAND = (128 << 10) - 1  # bytes of one argument on Linux (MAX_ARG_STRLEN of execve(2) without NUL)
_SURE = 0.8  # similarity from which one key counts as a typo of another: "mather" for "matcher"
_CLAUDES = frozenset(
    {
        *("PermissionRequest", "PermissionDenied", "PostToolBatch", "SubagentStart", "SubagentStop"),
        *("StopFailure", "PostCompact", "Setup", "UserPromptExpansion", "InstructionsLoaded"),
        *("MessageDisplay", "ConfigChange", "CwdChanged", "FileChanged", "TaskCreated", "TaskCompleted"),
        *("TeammateIdle", "WorktreeCreate", "WorktreeRemove", "Elicitation", "ElicitationResult"),
    }
)
"""Claude Code events for which relay runs no rules."""

_NOT_RUN = frozenset({"http", "agent", "mcp_tool"})
_TOOL = ("tool", "tools", "tool_name", "tool_input")  # keys that can only mean the tool that a rule is for

_FIELDS = (
    "type",
    "command",
    "prompt",
    "matcher",
    "if",
    "timeout",
    "args",
    "async",
    "name",
    "shell",
    "asyncRewake",
)


class _Skip(Exception):
    """A rule is skipped, by a mistake in it; the text says which, and what to do."""


class _NotForRelay(_Skip):
    """A rule is skipped, though Claude Code may run it; the text says why, and what to do."""


def parse(path: Path, content: bytes, origin: Origin) -> tuple[list[Rule], list[RuleWarning]]:
    """Return the rules in `content` of the file `path`, in their order, and warnings about its mistakes."""
    file = _File(path, origin)
    file.read(content)
    seen: Counter[str] = Counter()
    return [replace(rule, id=_id(rule, seen)) for rule in file.rules], file.warnings


def _id(rule: Rule, seen: Counter[str]) -> str:
    """Return the id of a rule, whatever its position; equal rules are numbered from the second on."""
    parts = [str(rule.path), rule.event, str(rule.matcher), rule.work]
    base = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
    seen[base] += 1
    return base if seen[base] == 1 else f"{base}-{seen[base]}"


@dataclass(slots=True)
class _File:
    """A file being read."""

    path: Path
    origin: Origin
    rules: list[Rule] = field(default_factory=list)
    warnings: list[RuleWarning] = field(default_factory=list)

    def warn(
        self, text: str, line: int = 0, event: str = "", *, unread: bool = False, skipped: bool = False
    ) -> None:
        self.warnings.append(RuleWarning(self.path, text, line, event, unread, skipped))

    def read(self, content: bytes) -> None:
        if len(content) > LARGEST:
            what = f"it has more than {LARGEST >> 20} MB, and relay ignores it. Write fewer or shorter rules."
            return self.warn(what, unread=True)
        try:
            root = json_positions.parse(content.decode(_encoding(content)))
        except UnicodeDecodeError as error:
            what = f"it is not UTF-8 (byte {error.start + 1}) so relay does not read it. Save it as UTF-8."
            return self.warn(what, unread=True)
        except json.JSONDecodeError as error:
            what = f"it is not JSON: {error.msg} (column {error.colno}). relay ignores the whole file."
            return self.warn(what, error.lineno, unread=True)
        hooks = root.value.get("hooks") if isinstance(root.value, dict) else None
        if hooks is None or not isinstance(hooks.value, dict):
            what = 'it has no rules: write {"hooks": {"PreToolUse": [...]}}.'
            return self.warn(what, (hooks or root).line, unread=not _emptied(root))
        self.repeated(root)
        switch = root.value.get("disableAllHooks")
        if switch is not None and switch.value is True:
            return self.warn("it sets disableAllHooks, so none of its rules applies.", switch.line)
        self.repeated(hooks)
        for name, entries in hooks.value.items():
            if name in EVENTS:
                _Section(self, EVENTS[name]).read(entries)
            else:
                self._unknown_event(name, entries.line)
        return None

    def repeated(self, node: Node, event: str = "") -> None:
        for key in dict.fromkeys(node.repeated):
            self.warn(
                f"{_quoted(key)} appears here more than once, and the last one counts.", node.line, event
            )

    def _unknown_event(self, name: str, line: int) -> None:
        allowed = f"The events are {', '.join(EVENTS)}."
        if name in _CLAUDES:
            self.warn(f"relay runs no rules for this Claude Code event. Skipped. {allowed}", line, name)
            return
        hint = did_you_mean(name, EVENTS)
        self.warn(
            f"there is no such event. Skipped. {hint}{allowed}", line, one_line(repr(name), 60), skipped=True
        )


@dataclass(frozen=True, slots=True)
class _Section:
    """The rules for one event in a file."""

    file: _File
    event: EventType

    def read(self, entries: Node) -> None:
        for entry in _listed(entries):
            if not isinstance(entry.value, dict):
                self._warn(f"a rule must be an object, not {_shown(entry)}. Skipped.", entry, skipped=True)
                continue
            self.file.repeated(entry, self.event.name)
            hooks = None if "type" in entry.value else self._spelt(entry, "hooks")
            hooks = hooks or entry.value.get("hooks")
            matched = self._matched(entry)
            if hooks is None or ("type" in entry.value and not isinstance(hooks.value, list)):
                self._rule(entry, "flat", matched)
                continue
            self._useless(entry, ("matcher", "hooks"), used=(matched, hooks))
            self._group(hooks, matched)

    def _group(self, hooks: Node, matched: Node | None) -> None:
        if not isinstance(hooks.value, list | dict) or hooks.value == []:
            self._warn(
                f"hooks is {_shown(hooks)}, so the group has no rules; write a list of them: "
                '[{"type": "command", "command": "..."}]. Skipped.',
                hooks,
                skipped=True,
            )
            return
        for handler in _listed(hooks):
            if not isinstance(handler.value, dict):
                self._warn(
                    f"a handler must be an object, not {_shown(handler)}. Skipped.", handler, skipped=True
                )
                continue
            self.file.repeated(handler, self.event.name)
            if "matcher" in handler.value:
                self._warn("the matcher inside hooks has no effect: it belongs next to hooks.", handler)
            self._rule(handler, "group", matched)

    def _rule(self, node: Node, shape: Shape, matched: Node | None) -> None:
        try:
            kind = self._kind(node, shape)
            found = matcher(None if matched is None else matched.plain(), self.event)
            if wanted := node.value.get("if"):
                found = with_condition(found, wanted.plain(), self.event, self.file.path.absolute().parent)
            _shell(node)
            text = _text(node, kind)
            args = _args(node) if kind == "command" else None
        except (_Skip, BadMatcher) as skip:
            self._warn(f"{skip} Skipped.", node, skipped=not isinstance(skip, _NotForRelay))
            return
        self._useless(node, (*_FIELDS, "hooks"), used=(matched,))
        if wanted := node.value.get("if"):
            for doubt in condition_doubts(wanted.plain()):
                self._warn(doubt, wanted)
        if "once" in node.value:
            self._warn("once has no effect: the rule runs every time.", node.value["once"])
        background = kind == "command" and (self._flag(node, "async") or self._wakes(node))
        rule = Rule(
            id="",
            name=self._name(node) or default_name("" if kind == "prompt" else text, args),
            event=self.event.name,
            kind=kind,
            shape=shape,
            path=self.file.path,
            line=node.line,
            origin=self.file.origin,
            command=text if kind == "command" else "",
            args=args,
            prompt=text if kind == "prompt" else "",
            matcher=found,
            timeout=self._timeout(node, waited=not background),
            background=background,
        )
        self.file.rules.append(rule)

    def _kind(self, node: Node, shape: Shape) -> RuleKind:
        given = node.value.get("type")
        allowed = f"Allowed for {self.event.name}: {', '.join(sorted(self.event.kinds))}."
        if given is None:
            meant = _misspelt(node, "type", _SURE)
            raise _Skip(f"the rule has no type. {f'Is it {_quoted(meant)}? ' if meant else ''}{allowed}")
        if not isinstance(given.value, str):
            raise _Skip(f"type is {_shown(given)}. {allowed}")
        if given.value in _NOT_RUN:
            raise _NotForRelay(f"relay does not run rules of the type {given.value!r}. {allowed}")
        if given.value not in get_args(RuleKind):
            hint = did_you_mean(given.value, get_args(RuleKind))
            raise _Skip(f"type is {_shown(given)}. {hint}{allowed}")
        if shape == "group" and given.value == "prompt":
            raise _NotForRelay(
                "a prompt in a group calls a model, which relay does not do. For literal text, write a flat "
                "rule for UserPromptSubmit, without the surrounding hooks."
            )
        for kind in self.event.kinds:
            if kind == given.value:
                return kind
        raise _NotForRelay(f"rules of the type {given.value!r} are not for {self.event.name}. {allowed}")

    def _matched(self, entry: Node) -> Node | None:
        """Return the matcher of a rule or a group, and warn about doubts in it."""
        matched = self._spelt(entry, "matcher")
        if matched is None:
            return None
        if isinstance(matched.value, str) and matched.value and not self.event.matched:
            self._warn(
                f"the matcher {_shown(matched)} has no effect: this event has nothing to match.",
                matched,
            )
        with suppress(BadMatcher):  # each rule that it is for says so
            for doubt in doubts(matched.plain(), self.event):
                self._warn(doubt, matched)
        return matched

    def _spelt(self, node: Node, key: str) -> Node | None:
        """Return the value of `key`, even if misspelled: without it the rule would guard nothing."""
        value: Node | None = node.value.get(key)
        if value is None and (other := _misspelt(node, key, _SURE)):
            value = node.value[other]
            self._warn(f"{_quoted(other)} is read as {_quoted(key)}; write it that way.", value)
        return value

    def _useless(self, node: Node, known: Iterable[str], *, used: Iterable[Node | None]) -> None:
        """Warn about keys that were meant to have an effect, but have none. Skip those with `used` values."""
        matched = self.event.matched
        for key, value in node.value.items():
            if key in known or any(value is each for each in used):
                continue
            if meant := suggest(key, known, _SURE):
                self._warn(f"{_quoted(key)} has no effect. Did you mean {_quoted(meant)}?", value)
            elif matched and key.partition(".")[0] in (matched, *_TOOL):
                self._warn(
                    f"{_quoted(key)} has no effect here: it belongs in the matcher, as in "
                    f'"matcher": {{"{matched}": "..."}}.',
                    value,
                )

    def _timeout(self, node: Node, *, waited: bool) -> float:
        given = node.value.get("timeout")
        if given is None or given.value is None:
            return TIMEOUT
        value = given.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_TIMEOUT:
            self._warn(
                f"timeout is {_shown(given)}; write seconds, more than 0 and at most {LONGEST_TIMEOUT:.0f}. "
                f"relay uses {TIMEOUT:g}.",
                given,
            )
            return TIMEOUT
        if waited and value > DEADLINE:
            self._warn(
                f"timeout is {value:g}, but all rules of an event together have only {DEADLINE:g} seconds. "
                'If nothing needs to wait for the rule, write "async": true.',
                given,
            )
            return DEADLINE
        return float(value)

    def _flag(self, node: Node, key: str) -> bool:
        given = node.value.get(key)
        if given is None or isinstance(given.value, bool):
            return given is not None and given.value
        self._warn(f"{key} is {_shown(given)}; write true or false. relay uses false.", given)
        return False

    def _wakes(self, node: Node) -> bool:
        """Return True if the rule is in the background because it may wake Claude Code later."""
        if not self._flag(node, "asyncRewake"):
            return False
        self._warn("asyncRewake runs it in the background, but relay does not wake the agent.", node)
        return True

    def _name(self, node: Node) -> str:
        given = node.value.get("name")
        if given is None:
            return ""
        if isinstance(given.value, str) and given.value.strip():
            return one_line(given.value.strip(), NAME_LENGTH)
        self._warn(f"name is {_shown(given)}; write a string.", given)
        return ""

    def _warn(self, text: str, node: Node, *, skipped: bool = False) -> None:
        self.file.warn(text, node.line, self.event.name, skipped=skipped)


def _shell(node: Node) -> None:
    """Raise unless sh can run the rule's command: in Claude Code "bash" is sh, too."""
    given = node.value.get("shell")
    if given is None or given.value in (None, "bash"):
        return
    if given.value == "powershell":
        raise _NotForRelay('relay runs no PowerShell. Call pwsh in the command, without "shell".')
    raise _Skip(f'shell is {_shown(given)}; the only one is "bash". Call another shell in the command.')


def _text(node: Node, key: str) -> str:
    given = node.value.get(key)
    if given is None or given.value == "":
        meant = _misspelt(node, key)
        hint = f" Is {_quoted(meant)} a typo?" if meant else ""
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
    """Raise _Skip for text that cannot be passed to a program."""
    if argument and "\0" in text:
        raise _Skip(f"{key} contains a NUL character. Remove it.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _Skip(f"{key} contains half a character ({error.object[error.start]!r}). Remove it.") from None
    if argument and size > _LONGEST_COMMAND:
        raise _Skip(
            f"{key} has {size} bytes, and the limit for a program is {_LONGEST_COMMAND}. Make it a script."
        )


def _encoding(content: bytes) -> str:
    """Return the encoding: UTF-16, which PowerShell writes, has a byte order mark."""
    return "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _emptied(root: Node) -> bool:
    """Return True if a file has no rules on purpose, rather than rules in a wrong place."""
    if not isinstance(root.value, dict):
        return False
    hooks = root.value.get("hooks")
    return not (hooks and hooks.value) and not any(
        key in EVENTS or suggest(key, ["hooks"], _SURE) for key in root.value if key != "hooks"
    )


def _misspelt(node: Node, key: str, alike: float = 0.6) -> str | None:
    """Return the first unknown key of `node` that was probably meant as `key`."""
    return next(
        (other for other in node.value if other not in _FIELDS and suggest(other, [key], alike)), None
    )


def _listed(node: Node) -> list[Node]:
    """Return the items of a list; treat any other value as a list of one."""
    return node.value if isinstance(node.value, list) else [node]


def _shown(node: Node) -> str:
    value = node.plain()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return one_line(json.dumps(value), 60)


def _quoted(text: str) -> str:
    return one_line(json.dumps(text), 60)
