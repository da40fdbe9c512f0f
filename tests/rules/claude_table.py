"""How Claude Code itself treats hooks: one table, read by two tests.

    MATCHERS, CONDITIONS, FIELDS   × CALLS    the calls for which a hook runs
    ANSWERS                                   the effects of what its command prints, and of its exit code
    FILES                                     whether a file's hook runs, whatever else the file contains

tests/rules/test_rules_as_claude.py compares the rows with relay, tests/real_agents/test_hooks_as_claude.py
with Claude Code. A row has a second result where relay deliberately differs, and says why.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WORK, HOME = "{work}", "{home}"  # stand for the agent's folder and the user's home


def _bash(command: str) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": command, "description": "A scripted command"}


def _write(path: str) -> tuple[str, dict[str, Any]]:
    return "Write", {"file_path": path, "content": "x"}


CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "push": _bash("git push origin"),
    "status": _bash("git status"),
    "git": _bash("git"),
    "gitk": _bash("gitk --all"),
    "and": _bash("ls && git push"),
    "pipe": _bash("cd /x; git push | cat"),
    "lines": _bash("ls\ngit push"),
    "behind": _bash("git push & ls"),
    "assigned": _bash("FOO=1 git push"),
    "redirected": _bash("git push > /tmp/x"),
    "spaces": _bash("git  push"),
    "if": _bash("if true; then git push; fi"),
    "for": _bash("for i in 1; do git push; done"),
    "group": _bash("(git push)"),
    "not": _bash("! git push"),
    "dollar": _bash("echo $(git push)"),
    "ticks": _bash("echo `git push`"),
    "xargs": _bash("xargs git push"),
    "sudo": _bash("sudo git push"),
    "path": _bash("/usr/bin/git push"),
    "quoted": _bash("echo 'git push'"),
    "comment": _bash("echo hi # git push"),
    "heredoc": _bash("cat <<X\ngit push\nX"),
    "unknown": _bash("$X push"),
    "process": _bash("echo <(git push)"),
    "braces": _bash("git {push,x}"),
    "block": _bash("{ git push; }"),
    "case": _bash("case x in y) git push;; esac"),
    "function": _bash("f() { git push; }"),
    "continued": _bash("g\\\nit push"),
    "expanded": _bash("g$X push"),
    "variable": _bash("git $X"),
    "glob": _bash("git pu*"),
    "escaped": _bash("\\git pu''sh"),
    "time": _bash("time git push"),
    "npm": _bash("npm run build"),
    "hostname": ("Read", {"file_path": "/etc/hostname"}),
    "read": ("Read", {"file_path": f"{WORK}/src/a.ts"}),
    "source": _write(f"{WORK}/src/a.ts"),
    "top": _write(f"{WORK}/b.ts"),
    "env": _write(f"{HOME}/x.env"),
    "mcp": ("mcp__memory__save", {}),
    "fetch": ("WebFetch", {"url": "https://example.com/a", "prompt": "x"}),
    "agent": ("Agent", {"description": "a b c", "prompt": "x", "subagent_type": "Explore"}),
}
"""Calls of tools, by a short name."""

OLD_NAMES = {"Agent": "Task"}
"""Tools that Claude Code offers its model under another name than it tells hooks."""


@dataclass(frozen=True)
class Row:
    """A hook, and the names of the calls or tools for which it runs; relay: those where relay differs."""

    hook: Mapping[str, Any]
    runs: str
    relay: str | None = None
    why: str = ""


def _matcher(matcher: str, runs: str, relay: str | None = None, why: str = "") -> Row:
    return Row({"matcher": matcher}, runs, relay, why)


ALL = "Bash Read Write mcp__memory__save WebFetch Agent"
_PYTHON = "relay's regular expressions are Python's; a rule that relay can read is not dropped"

MATCHERS = [
    _matcher("", ALL),
    _matcher("*", ALL),
    _matcher(".*", ALL),
    _matcher("Bash", "Bash"),
    _matcher("bash", ""),
    _matcher("BASH", ""),
    _matcher("Bas", ""),
    _matcher("Bash ", "Bash"),
    _matcher("Bash|Read", "Bash Read"),
    _matcher("Bash | Read", "Bash Read"),
    _matcher("Bash,Read", "Bash Read"),
    _matcher("Bash, Read", "Bash Read"),
    _matcher("Bash || Read", "Bash Read"),
    _matcher("Bash|", "Bash"),
    _matcher("|", ""),
    _matcher("Bash Read", ""),
    _matcher("Bash;Read", ""),
    _matcher("Edit|MultiEdit|Write", "Write"),
    _matcher("Task", "Agent"),
    _matcher("Agent", "Agent"),
    _matcher("Task|Bash", "Bash Agent"),
    _matcher("mcp__memory__save", "mcp__memory__save"),
    _matcher("mcp__memory", ""),
    _matcher("mcp__memory__", ""),
    _matcher("mcp__memory__.*", "mcp__memory__save"),
    _matcher("mcp__memory__*", "mcp__memory__save"),
    _matcher("mcp__.*", "mcp__memory__save"),
    _matcher("mcp__.*__save", "mcp__memory__save"),
    _matcher("mcp__.*__(write|save).*", "mcp__memory__save"),
    _matcher("^Bash$", "Bash"),
    _matcher("^(Bash|Read)$", "Bash Read"),
    _matcher("^(?:Bash|Read)$", "Bash Read"),
    _matcher("(Bash|Read)", "Bash Read"),
    _matcher("B.sh", "Bash"),
    _matcher("ash$", "Bash"),
    _matcher("Bash.*", "Bash"),
    _matcher("Bash?", "Bash"),
    _matcher("Bash.", ""),
    _matcher("Ba[rs]h", "Bash"),
    _matcher(r"\bBash\b", "Bash"),
    _matcher(r"^\w+$", ALL),
    _matcher("^[a-z_]+$", "mcp__memory__save"),
    _matcher("^[A-Z]", "Bash Read Write WebFetch Agent"),
    _matcher("(?<tool>Bash)", "Bash"),
    _matcher("^(?!Bash$).*", "Read Write mcp__memory__save WebFetch Agent"),
    _matcher("^(?!Bash|Read).*$", "Write mcp__memory__save WebFetch Agent"),
    _matcher("^(?!mcp__).*$", "Bash Read Write WebFetch Agent"),
    _matcher("^(?!BashOutput)Bash", "Bash"),
    _matcher("^(?!Ba).*", "Read Write mcp__memory__save WebFetch Agent"),
    _matcher("^[^B]", "Read Write mcp__memory__save WebFetch Agent"),
    _matcher("^(?!Task$).*", ALL),
    _matcher("^$", ""),
    _matcher("Bash(git *)", ""),
    _matcher("Bash\n", ""),
    _matcher("*.py", ""),
    _matcher("(", ""),
    _matcher("Bash|(", ""),
    _matcher("[^]", ALL, "", "not one of Python's regular expressions, so relay reports it"),
    _matcher("(?i)bash", "", "Bash", _PYTHON),
    _matcher("(?P<tool>Bash)", "", "Bash", _PYTHON),
    _matcher(r"\ABash\Z", "", "Bash", _PYTHON),
]

_UNSURE = "heredoc unknown process braces block case function continued expanded"
"""It does not know what these run, so a condition never spares the hook."""

_PARTS = "dollar ticks variable"
"""It does not know all words of these, so only a condition on a command's name may spare the hook."""

_GIT_PUSH = (
    f"and pipe lines behind assigned redirected spaces if for group not xargs escaped {_PARTS} {_UNSURE}"
)
_GIT = f"push status git glob {_GIT_PUSH}"


def _if(condition: str, runs: str) -> Row:
    return Row({"if": condition}, runs)


CONDITIONS = [
    _if("", " ".join(CALLS)),
    _if("Bash", " ".join(name for name, (tool, _) in CALLS.items() if tool == "Bash")),
    _if("Bash(*)", " ".join(name for name, (tool, _) in CALLS.items() if tool == "Bash")),
    _if("Bash()", " ".join(name for name, (tool, _) in CALLS.items() if tool == "Bash")),
    _if("Bash(git *)", _GIT),
    _if("Bash(git:*)", _GIT),
    _if("Bash(git*)", f"{_GIT} gitk"),
    _if("Bash(git push)", _GIT_PUSH),
    _if("Bash(git push *)", f"push {_GIT_PUSH}"),
    _if("Bash(git push:*)", f"push {_GIT_PUSH}"),
    _if("Bash(git push origin)", f"push {_PARTS} {_UNSURE}"),
    _if("Bash(git * origin)", f"push {_PARTS} {_UNSURE}"),
    _if("Bash(* push)", f"{_GIT_PUSH} sudo path quoted time"),
    _if("Bash(rm *)", _UNSURE),
    _if("Bash(sudo *)", f"sudo {_UNSURE}"),
    _if("Bash(/usr/bin/git *)", f"path {_UNSURE}"),
    _if("Bash(echo *)", f"dollar ticks quoted comment {_UNSURE}"),
    _if("Bash(npm run *)", f"npm {_PARTS} {_UNSURE}"),
    _if("Read", "hostname read"),
    _if("Read(//etc/**)", "hostname"),
    _if("Read(//etc/hostname)", "hostname"),
    _if("Read(/etc/**)", ""),
    _if("Read(*.ts)", "read"),
    _if("Edit(*.ts)", ""),
    _if("Write(*.ts)", "source top"),
    _if("Write(a.ts)", "source"),
    _if("Write(src)", "source"),
    _if("Write(src/)", "source"),
    _if("Write(src/*)", "source"),
    _if("Write(./src/**)", "source"),
    _if("Write(/src/**)", "source"),
    _if("Write(**/*.ts)", "source top"),
    _if("Write(**)", "source top env"),
    _if("Write(~/**)", "env"),
    _if("Write(~/*.env)", "env"),
    _if("Write(*.env)", "env"),
    _if("mcp__memory__save", "mcp"),
    _if("mcp__memory", ""),
    _if("mcp__memory__*", ""),
    _if("WebFetch", "fetch"),
    _if("WebFetch(domain:example.com)", ""),
    _if("Task", "agent"),
    _if("Agent", "agent"),
    _if("bash(git *)", ""),
    _if("git *", ""),
    _if("Edit|Write", ""),
    _if("Bash (git *)", ""),
]

FIELDS = [
    Row({"shell": "bash"}, ALL),
    Row({"shell": "powershell"}, ""),
    Row({"timeout": 5}, ALL),
    Row({"timeout": 0.5}, ALL),
    Row({"once": True}, ALL),
    Row({"async": True}, ALL),
    Row({"asyncRewake": True}, ALL),
    Row({"statusMessage": "x"}, ALL),
    Row({"id": "x", "enabled": False}, ALL),
]


PRE, POST, FAILED, PROMPT, STOP = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure"),
    *("UserPromptSubmit", "Stop"),
)


@dataclass(frozen=True)
class Answer:
    """Commands of hooks for one event, and their effect on a call of Bash, a prompt, or the end of a turn.

    The effect is a set of words. `ask`: the user is asked. `end`: the turn ends at once. The others are what
    the model receives, in this turn or the next: `ran`, the output of the call (of a prompt: it reaches the
    model); `new`, that of the changed call; or a word from the command. call: `wary` needs the user's
    permission; `fails` fails.
    """

    event: str
    effect: str
    commands: tuple[str, ...]
    call: str = "safe"
    relay: str | None = None
    why: str = ""
    timeout: float | None = None  # TIMEOUT, for its only command

    @property
    def alone(self) -> bool:
        """It is about a whole turn, or may end one."""
        return self.event in (PROMPT, STOP) or any('"continue"' in command for command in self.commands)


TIMEOUT = 0.5

WORDS = ("ran", "new", "why", "also", "err", "out")
"""What a command or a call prints is a word, `-` and the number of the row: `why-7`."""


def said(stdout: object, code: int = 0, err: str = "") -> str:
    """Return a command that prints this; words are followed by `-@`, which stands for the row's number."""
    text = stdout if isinstance(stdout, str) else json.dumps(stdout, ensure_ascii=False)
    return f"printf %s {shlex.quote(text)}; printf %s {shlex.quote(err)} >&2; exit {code}"


def specific(event: str, **fields: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def _pre(**fields: object) -> dict[str, Any]:
    return specific(PRE, **fields)


_WHY = {"permissionDecisionReason": "why-@"}
_DENY = _pre(permissionDecision="deny", **_WHY)
_ASK = _pre(permissionDecision="ask", permissionDecisionReason="asked")
_ALLOW = _pre(permissionDecision="allow")
_NEW = {"updatedInput": {"command": "echo new-@", "description": "changed"}}
_BLOCK = {"decision": "block", "reason": "why-@"}
_HALT = {"continue": False, "stopReason": "why-@"}
_ONCE = "[ ! -e ../once-@ ] || exit 0; touch ../once-@; "

_READS = "relay also reads this; Claude Code drops the whole answer, and the call happens"
_EXTENSION = "relay's own form of an answer"
_GUARD = "a guard that cannot run denies the call"
_HALTS = "continue: false prevents the call, too"


def _row(event: str, effect: str, *commands: str, **more: Any) -> Answer:
    return Answer(event, effect, commands, **more)


ANSWERS = [
    _row(PRE, "ran", said("")),
    _row(PRE, "ran", said("out-@")),
    _row(PRE, "err", said("", 2, "err-@")),
    _row(PRE, "", said("", 2)),
    _row(PRE, "", said("out-@", 2)),
    _row(PRE, "ran", said("", 1, "err-@")),
    _row(PRE, "ran", said("out-@", 3)),
    _row(PRE, "why", said(_DENY, 3)),
    _row(PRE, "err", said(_ALLOW, 2, "err-@")),
    _row(PRE, "why", said(_BLOCK, 2, "err-@")),
    _row(PRE, "ran", "nonesuch-@", relay="", why=_GUARD),
    _row(PRE, "ran", "/etc/hostname", relay="", why=_GUARD),
    _row(PRE, "ran also", said(_pre(additionalContext="also-@"), 127), relay="also", why=_GUARD),
    _row(PRE, "ask ran", said(_ASK, 127)),
    _row(PRE, "ran", "kill -9 $$"),
    _row(PRE, "why", said(_DENY)),
    _row(PRE, "", said(_pre(permissionDecision="deny"))),
    _row(PRE, "ask ran", said(_ASK)),
    _row(PRE, "ask ran", said(""), call="wary"),
    _row(PRE, "ran", said(_ALLOW), call="wary"),
    _row(PRE, "ran", said({"decision": "approve"}), call="wary"),
    _row(PRE, "why", said(_BLOCK)),
    _row(PRE, "", said({"decision": "block"})),
    _row(PRE, "ran", said('{"decision": "block", "reason": "why-@"')),
    _row(PRE, "ran", said(f"out-@\n{json.dumps(_BLOCK)}")),
    _row(PRE, "ran", said(f"{json.dumps(_BLOCK)}\nout-@")),
    _row(PRE, "why", said(f"\ufeff{json.dumps(_BLOCK)}")),
    _row(PRE, "why", said({"unknown": 1, **_BLOCK})),
    _row(PRE, "ran", said(specific(POST, permissionDecision="deny", **_WHY))),
    _row(PRE, "ran", said({"hookSpecificOutput": {"permissionDecision": "deny", **_WHY}})),
    _row(PRE, "ran", said({"decision": 5, "reason": "why-@"})),
    _row(PRE, "ran", said(_pre(permissionDecision="maybe", **_WHY))),
    _row(PRE, "ran", said({"decision": None, "hookSpecificOutput": None})),
    _row(PRE, "ran", said({"suppressOutput": "yes", **_BLOCK}), relay="why", why=_READS),
    _row(PRE, "ran", said({"systemMessage": None, **_DENY}), relay="why", why=_READS),
    _row(PRE, "ran", said({"decision": "deny", "reason": "why-@"}), relay="why", why=_READS),
    _row(PRE, "ran", said([_BLOCK]), relay="why", why=_EXTENSION),
    _row(PRE, "ran", said({"additionalContext": "also-@"}), relay="ran also", why=_EXTENSION),
    _row(PRE, "ran also", said(_pre(additionalContext="also-@"))),
    _row(PRE, "ran also", said({"suppressOutput": True, **_pre(additionalContext="also-@")})),
    _row(PRE, "ran", said({"systemMessage": "out-@"})),
    _row(PRE, "new", said(_pre(**_NEW))),
    _row(PRE, "new", said(_pre(permissionDecision="allow", **_NEW))),
    _row(PRE, "ask new", said(_pre(permissionDecision="ask", **_NEW))),
    _row(PRE, "why", said(_pre(permissionDecision="deny", **_WHY, **_NEW))),
    _row(PRE, "ran", said({"continue": True})),
    _row(PRE, "end ran", said(_HALT), relay="end", why=_HALTS),
    _row(PRE, "err", said(_HALT, 2, "err-@")),
    _row(PRE, "why", said({**_ALLOW, **_BLOCK})),
    _row(PRE, "why", said(_DENY), said(_ALLOW)),
    _row(PRE, "why", said(_ALLOW), said(_DENY)),
    _row(PRE, "ask ran", said(_ASK), said(_ALLOW)),
    _row(PRE, "ask ran", said(_ALLOW), said(_ASK)),
    _row(PRE, "why", said(_ASK), said(_DENY)),
    _row(PRE, "why", said("", 1), said(_DENY)),
    _row(PRE, "ran", "echo '{\"async\": true}'; exit 2"),
    _row(PRE, "ran", "sleep 60; exit 2", timeout=TIMEOUT),
    _row(POST, "ran", said("out-@")),
    _row(POST, "ran", said("", 1, "err-@")),
    _row(POST, "ran err", said("", 2, "err-@")),
    _row(POST, "ran why", said(_BLOCK)),
    _row(POST, "ran also", said(specific(POST, additionalContext="also-@"))),
    _row(POST, "ran why also", said({**_BLOCK, **specific(POST, additionalContext="also-@")})),
    _row(POST, "end ran", said(_HALT)),
    _row(FAILED, "ran err", said("", 2, "err-@"), call="fails"),
    _row(FAILED, "ran why", said(_BLOCK), call="fails"),
    _row(FAILED, "ran also", said(specific(FAILED, additionalContext="also-@")), call="fails"),
    _row(FAILED, "ran", said(_HALT), call="fails", relay="end ran", why="continue: false ends the turn"),
    _row(PROMPT, "ran", said("")),
    _row(PROMPT, "ran out", said("out-@")),
    _row(PROMPT, "ran out", said("{out-@")),
    _row(PROMPT, "ran", said("out-@", 1, "err-@")),
    _row(PROMPT, "end", said("out-@", 2, "err-@")),
    _row(PROMPT, "end", said(_BLOCK)),
    _row(PROMPT, "end", said({"decision": "block"})),
    _row(PROMPT, "ran", said({"decision": "approve", "reason": "why-@"})),
    _row(PROMPT, "ran also", said(specific(PROMPT, additionalContext="also-@"))),
    _row(PROMPT, "end", said(_HALT)),
    _row(STOP, "end", said("out-@")),
    _row(STOP, "end", said("", 1, "err-@")),
    _row(STOP, "err", _ONCE + said("", 2, "err-@")),
    _row(STOP, "why", _ONCE + said(_BLOCK)),
    _row(STOP, "", _ONCE + said({"decision": "block"})),
    _row(STOP, "also", _ONCE + said(specific(STOP, additionalContext="also-@"))),
    _row(STOP, "end", said(_HALT)),
    _row(STOP, "end", said(_BLOCK), said(_HALT)),
]


RUNS = "RUNS"
"""Stands in a file for a command that proves that its hook has run."""

_HOOK = {"type": "command", "command": RUNS}
_GROUP = {"matcher": "Bash", "hooks": [_HOOK]}
_WHOLE = "a mistake in one rule, or in another setting, leaves the other rules in force"
_SHAPE = "relay also reads this shape"
_DEFAULT = "relay uses the default value, with a warning"


@dataclass(frozen=True)
class File:
    """A file of hooks, and whether its hook runs. Text that is not JSON stands as it is."""

    name: str
    content: object
    runs: bool
    relay: bool | None = None
    why: str = ""

    def bytes(self, command: str) -> bytes:
        """Return the content with `command`."""
        if isinstance(self.content, bytes):
            return self.content.decode("utf-16").replace(RUNS, command).encode("utf-16")
        text = self.content if isinstance(self.content, str) else json.dumps(self.content)
        return text.replace(RUNS, command).encode()


def _entries(*entries: object, **more: object) -> dict[str, Any]:
    return {"hooks": {"PreToolUse": list(entries)}, **more}


def _with(**fields: object) -> dict[str, Any]:
    return _entries({"matcher": "Bash", "hooks": [_HOOK | fields]})


_TEXT = json.dumps(_entries(_GROUP), indent=1)

FILES = [
    File("a group", _entries(_GROUP), True),
    File("no matcher", _entries({"hooks": [_HOOK]}), True),
    File("a matcher null", _entries({"matcher": None, "hooks": [_HOOK]}), False, True, _SHAPE),
    File("a flat rule", _entries(_HOOK | {"matcher": "Bash"}), False, True, _SHAPE),
    File(
        "a flat rule beside a group",
        _entries({"type": "command", "command": ":"}, _GROUP),
        False,
        True,
        _SHAPE,
    ),
    File("an object for the groups", {"hooks": {"PreToolUse": _GROUP}}, False, True, _SHAPE),
    File("an object for hooks", _entries({"matcher": "Bash", "hooks": _HOOK}), False, True, _SHAPE),
    File("a string for hooks", _entries({"matcher": "Bash", "hooks": RUNS}), False),
    File("a list at the top", [_GROUP], False),
    File("events at the top", {"PreToolUse": [_GROUP]}, False),
    File("a list of hooks with events", {"hooks": [{"event": "PreToolUse", **_GROUP}]}, False),
    File("a list for the matcher", _entries({"matcher": ["Bash"], "hooks": [_HOOK]}), False),
    File(
        "an object for the matcher",
        _entries(_GROUP | {"matcher": {"tool_name": "Bash"}}),
        False,
        True,
        _SHAPE,
    ),
    File("a BOM", f"\ufeff{_TEXT}", True),
    File("CRLF", _TEXT.replace("\n", "\r\n"), True),
    File("UTF-16", _TEXT.encode("utf-16"), True),
    File("a line comment", f"// hooks\n{_TEXT}", False),
    File("a block comment", f"/* hooks */{_TEXT}", False),
    File("a trailing comma", f"{_TEXT[:-1]},}}", False),
    File("an unknown event", {"hooks": {"PreTolUse": [_GROUP], "PreToolUse": [_GROUP]}}, True),
    File("an event in lower case", {"hooks": {"preToolUse": [_GROUP]}}, False),
    File("an event in snake case", {"hooks": {"pre_tool_use": [_GROUP]}}, False),
    File("an event twice", f'{{"hooks": {{"PreToolUse": [], "PreToolUse": [{json.dumps(_GROUP)}]}}}}', True),
    File("another event is a string", {"hooks": {"Stop": "x", "PreToolUse": [_GROUP]}}, True),
    File("null beside a group", _entries(None, _GROUP), False, True, _WHOLE),
    File("a string beside a group", _entries("x", _GROUP), False, True, _WHOLE),
    File(
        "a misspelt type beside a hook",
        _entries({"hooks": [{"type": "comand", "command": ":"}, _HOOK]}),
        *(False, True, _WHOLE),
    ),
    File("no type beside a hook", _entries({"hooks": [{"command": ":"}, _HOOK]}), False, True, _WHOLE),
    File("no type", _entries({"hooks": [{"command": RUNS}]}), False),
    File("an empty command beside a hook", _entries({"hooks": [_HOOK | {"command": ""}, _HOOK]}), True),
    File(
        "http beside a hook",
        _entries({"hooks": [{"type": "http", "url": "http://127.0.0.1:9"}, _HOOK]}),
        True,
    ),
    File("a timeout that is text", _with(timeout="5"), False, True, _DEFAULT),
    File("a negative timeout", _with(timeout=-1), False, True, _DEFAULT),
    File("no timeout", _with(timeout=0), False, True, _DEFAULT),
    File("async that is text", _with(**{"async": "yes"}), False, True, _DEFAULT),
    File("an unknown shell", _with(shell="zsh"), False),
    File("a condition that is a number", _with(**{"if": 5}), False),
    File("arguments that are text", _with(args="x"), False),
    File("other keys", _entries(_GROUP | {"description": "x"}, description="x", **{"$schema": "x"}), True),
    File("another setting that is wrong", _entries(_GROUP, permissions={"allow": "x"}), False, True, _WHOLE),
    File("disableAllHooks", _entries(_GROUP, disableAllHooks=True), False),
]
