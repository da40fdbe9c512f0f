"""What commands print with `--json`: a section of the manual, on the site and in the man page.

The keys of an object that is a dataclass come from its docstring (`of`). Those of an object that a command
puts together are here. tests/cli/test_json_documented.py compares all of them with what the commands print.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from relay.agents.rate_limits import LimitWindow
from relay.control.sessions import SessionInfo
from relay.injection.audit_log import Entry
from relay.memory.backend import Memory
from relay.message import Message
from relay.messaging.user_inbox import Item
from relay.supervision.accounts import AccountHold

_LINE = re.compile(r"^(\w+(?:, \w+)*): +(.+?)\.?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Output:
    """What some commands print.

    commands: without `relay`: "ps", "replay NAME --events". Empty for keys of several commands.
    shape:    a sentence or two above the keys; empty for a single object.
    keys:     the meanings, each by one key or several ("name, team"). A nested key follows its parent's key
              and a dot; `*` is any key. A meaning begins with "only" if the key is not always present.
              An empty one is that of SHARED, or obvious.
    """

    commands: tuple[str, ...]
    shape: str
    keys: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"JSON of relay {', '.join(self.commands)}" if self.commands else "Keys of several commands"

    def rows(self) -> dict[tuple[str, ...], str]:
        """Return the meanings by their keys."""
        return {tuple(names.split(", ")): meaning for names, meaning in self.keys.items()}

    def meanings(self) -> dict[str, str]:
        """Return the meaning of each key."""
        return {
            name: meaning or SHARED.get(name, "") for names, meaning in self.rows().items() for name in names
        }


SHARED = {
    "name": "the agent",
    "team": "its team",
    "session_pid": "the session's process",
    "terminal_pid": "the shim, which owns the agent's terminal",
    "restarts": "how often it was restarted under its name",
    "viewers": "how many terminals view it (`relay attach --view`)",
    "prompt": "the kind of question, if it asks one: `permission`, `plan_approval`, `question` or `other`",
    "rule": "the rule of the profile that decided; empty for none",
    "lines": "the lines that the rule matched",
    "warnings": "mistakes in the files",
    "error": "only with the outcome `failed`: why",
}
"""Keys that mean the same in several outputs."""


def page() -> str:
    """Return the sections in Markdown."""
    return "\n\n".join(map(_section, sections()))


def sections() -> list[Output]:
    """Return the shared keys, and then all outputs."""
    shared = Output((), "", SHARED)
    return [shared, *OUTPUTS]


def _section(output: Output) -> str:
    parts = [f"### {output.title}"]
    if output.shape:
        parts.append(output.shape)
    rows = (
        f"- {', '.join(f'`{name}`' for name in names)}{': ' if meaning else ''}{meaning}"
        for names, meaning in output.rows().items()
    )
    return "\n\n".join([*parts, "\n".join(rows)])


def of(
    kind: type[Any], below: str = "", *, without: tuple[str, ...] = (), names: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the keys of a dataclass, from the lines `FIELD, FIELD: MEANING.` of its docstring.

    below: goes before each key, such as "holds.". without: fields that are not printed.
    names: keys that differ from their fields. Raise ValueError for a field without a line.
    """
    renamed = {} if names is None else names
    text = re.sub(r"\n +", " ", inspect.getdoc(kind) or "")  # joins continued lines
    known = {field.name for field in fields(kind)}
    found: dict[str, str] = {}
    documented: set[str] = set()
    for line in _LINE.finditer(text):
        given = [name for name in line[1].split(", ") if name in known]
        documented.update(given)
        keys = [f"{below}{renamed.get(name, name)}" for name in given if name not in without]
        if keys:
            found[", ".join(keys)] = line[2].replace("None", "`null`")
    if missing := known - documented:
        raise ValueError(f"the docstring of {kind.__name__} has no line for {', '.join(sorted(missing))}")
    return found


_USED = {
    "turns": "their number",
    "tokens, tokens.*": "`input`, `output`, `cache_read`, `cache_write`, of that `cache_write_1h`, and "
    "`total`",
    "cost": "US dollars; `null` if no price is known",
    "unpriced_tokens": "tokens of unknown price",
    "models, models.*, models.*.tokens, models.*.tokens.*, models.*.cost, models.*.unpriced_tokens": "the "
    "same by model",
    "first, last": "the times of the first and the last entry",
}


def _used_by(*parents: str) -> dict[str, str]:
    return {
        ", ".join(f"{parent}.{name}" for parent in parents for name in names.split(", ")): meaning
        for names, meaning in _USED.items()
    }


OUTPUTS = (
    Output(
        ("ps", "next"),
        "`ps` prints a list of agents, with `-a` also ended ones; `next` the agent that needs you most, or "
        "`null`.",
        {
            "name, team, session_pid, terminal_pid, restarts, viewers, prompt": "",
            **of(
                SessionInfo,
                without=(
                    "socket",
                    "apart",
                    *("name", "team", "pid", "terminal_pid", "restarts", "viewers", "prompt"),
                ),
            ),
        },
    ),
    Output(
        ("inbox",),
        "A list, the most urgent first. `show` prints an item, `done` a list of those that are done. "
        "`--follow` prints an item on each line, with `done`: whether it no longer waits.",
        of(Item),
    ),
    Output(
        ("messages", "send", "retry"),
        "A list; `retry` prints the message now on its way.",
        {
            **of(Message, names={"sender": "from"}),
            "team": "the team of both",
            "obstacle": "only of `send`: what keeps the message from being typed, if anything",
            "retried": "only of `retry`: the message that was retried; `id` if it was still on its way",
        },
    ),
    Output(
        ("stop", "restart", "reload", "resume", "forget", "hold", "down"),
        "A list of agents.",
        {
            "name, team, error": "",
            "outcome": "`ended`, `killed`, `restarted`, `reloaded`, `resumed`, `forgotten`, `held`, "
            "`not running` or `failed`",
            "agent_pid": "only with `restarted`: the agent's new process",
            "resumed": "only with `restarted`: whether it continues its conversation",
            "session_pid": "only with `reloaded`: the new session process",
            "worktree": "only of `down`, if a worktree is cleaned up",
            "worktree.path": "only there: its path, even if it was removed",
            "worktree.kept": "only there: why it is kept; `null` if it was removed, or there was none",
        },
    ),
    Output(
        ("up",),
        "A list of actions, in order; an agent may have several.",
        {
            "name": "",
            "action": "`started`, `resumed`, `running`, `changed`, `stopped`, `down`, `scheduled`, `full`, "
            "`removed`, `done` or `failed`; with `--dry-run` also `start` and `wait`",
            "text": "the same in words",
            "code": "only with `failed`, of an agent that ended at once: its exit code",
        },
    ),
    Output(
        ("spawn", "release NAME"),
        "Within an agent. `release NAME` prints a list with one object.",
        {
            "name, team": "",
            "outcome": "`started` or `released`",
            "text": "only of `spawn`: the same in words",
        },
    ),
    Output(
        ("release", "drop"),
        "A list of messages, agents and accounts.",
        {
            "outcome": "`released`, `not held`, `dropped` or `failed`",
            "id, from, to, was": "only of a message: its id, sender, receiver and previous state",
            "name, team": "only of an agent",
            "account": "only of an account",
            "error": "",
        },
    ),
    Output(
        ("join", "leave"),
        "",
        {
            "name, channel": "the agent and the channel",
            "member": "whether it is in it now",
            "changed": "whether the command changed this",
        },
    ),
    Output(
        ("top",),
        "One object, again on a line of its own whenever it has changed.",
        {
            "agents, agents.*": "the objects of `relay ps`, with these keys",
            "agents.group": "`needs you`, `working`, `waiting` or `done`",
            "agents.line": "its question, or why it needs you, or its last line",
            "agents.branch": "what is checked out in its folder",
            "agents.unread": "its unread items",
            "inbox, inbox.*": "the objects of `relay inbox`",
        },
    ),
    Output(
        ("channels",),
        "A list of channels.",
        {"channel, team, members": ""},
    ),
    Output(
        ("answer",),
        "",
        {
            "id": "the question, as `--question` takes it",
            "kind": "`permission`, `plan_approval`, `question` or `other`",
            "lines": "its lines on the screen",
            "options, options.number, options.text": "",
            "selected": "the number of the option with the cursor",
            "text": "whether it takes a text of your own",
            "result": "only if it was answered: `answered`, or `unconfirmed` if the question is still on "
            "the screen",
            "option": "only if it was answered: the chosen option; `null` for your own text",
            "option.number, option.text": "only with an option",
            "typed": "only if it was answered: the text that relay typed",
        },
    ),
    Output(
        ("explain",),
        "With the id of a message in a final state: only `message`.",
        {
            "session_pid, terminal_pid, restarts, viewers, prompt, rule, lines": "",
            "profile": "such as `claude`",
            "state, reason": "its state, and why",
            "reader": "how relay reads it: `lines` or `screen`",
            "version, checked": "its version, and those that the profile was checked with",
            "session_id, conversation": "its conversation's id, and whether that can be resumed",
            "bridge": "the status of its own hooks; empty for none",
            "mcp": "whether it has [relay's tools](MCP.md#in-an-agent)",
            "record": "only of an agent with its own record: how relay reads it",
            "rules": "how many rules of hooks.json files are in force; empty for none",
            "failure": "the error that ended its last turn, or `null`",
            "failure.class, failure.text, failure.reset_at, failure.source": "its class, such as "
            "`usage_limit`; its text; when the limit ends; `hook`, `transcript`, `screen` or `exit`",
            "directives": "counts",
            "directives.read, directives.missed, directives.lines": "bytes of output read and missed; lines",
            "directives.heard, directives.begun, directives.failed, directives.committed": "directives read, "
            "given to handlers, failed there; messages committed",
            "directives.unknown": "begun when a session ended, with an unknown outcome",
            "directives.passed_over, directives.hidden, directives.diff, directives.joined": "ignored: "
            "behind a sign, invisible, in a diff, drawn in one line with others",
            "directives.misspelt": "ignored: nothing handles their namespace, but a similar one",
            "directives.not_heeded, directives.not_told_apart": "ignored: because of the setting "
            "`directives`; possibly read before",
            "held, stored": "its messages that are held, and those stored for it",
            "waiting, obstacle": "texts waiting to be given, and what prevents it",
            "door": "whether its own inbox takes texts, and if not, why; empty if this kind has none",
            "bus": "`connected to ...`, or why not",
            "notices": "those that you have not seen",
            "configuration": "the mistakes in it",
            "tokens, cost, usage": "only of an agent whose usage is known: as of `relay ps`, and in full",
            "usage.turns, usage.tokens, usage.tokens.*, usage.cost, usage.unpriced_tokens, usage.models, "
            "usage.models.*": "as of `relay usage`",
            "hold, escalation, account_hold": "only if there is one: why it is held, its supervision has "
            "escalated, its account is held",
            "idle_dropped": "only if there are any: texts of idle handlers that were dropped",
            "exit_code, next_try, wanted": "only while it has ended and its terminal waits: as of `relay ps`",
            "message, message.*": "only with the id of a message: as of `relay messages`",
        },
    ),
    Output(("peek",), "", {"columns, rows, lines": "the terminal's size, and the text of each row"}),
    Output(
        ("logs",),
        "One object on each line.",
        {"time, text": "a line that the agent said, and when relay read it"},
    ),
    Output(
        ("events",),
        "One object on each line.",
        {
            "time, event, session, name": "",
            "*": "only of some events",
        },
    ),
    Output(
        ("audit",),
        "A list of injections. Keys that do not apply are left out.",
        {
            **of(Entry),
            "message_id, sender": "only of a message: its id and its sender",
            "hook_name": "only of a hook: its name",
        },
    ),
    Output(
        ("usage",),
        "",
        {
            "agents, accounts": "the usage of each",
            "agents.name, agents.team, agents.agent, agents.account": "the agent, its profile and account",
            "accounts.account": "",
            **_used_by("agents", "accounts"),
            "limits, limits.account, limits.agent, limits.at": "rate limits: the account, the agent, and "
            "when they were reported",
            "limits.windows": "each of its limits",
            **of(LimitWindow, "limits.windows."),
            "holds": "the accounts that are held",
            **of(AccountHold, "holds."),
            "prices": "the date of the list prices",
        },
    ),
    Output(
        ("memory save", "memory search", "memory list", "memory export"),
        "`save` prints one memory, `search` and `list` a list, `export` one on each line.",
        {**of(Memory), "metadata.*": "its entries"},
    ),
    Output(("memory forget",), "", {"forgotten": "`true`"}),
    Output(
        ("memory import",),
        "",
        {
            "imported, known": "how many were added, and how many existed already",
            "renamed": "how many of those added have a new id, because theirs was taken or not valid",
            "left": "how many were not imported after one failed; 0 if none failed",
        },
    ),
    Output(
        ("inspect",),
        "Times are seconds into the recording.",
        {
            "directives, directives.time": "the agent's directives, and when",
            "directives.namespace, directives.target, directives.body": "`@namespace:target body`",
            "directives.unclosed": "whether its block was never closed",
            "states, states.time": "its states, and when each began",
            "states.state, states.prompt, states.rule, states.lines": "as of `inspect --screen`",
        },
    ),
    Output(
        ("inspect --screen",),
        "",
        {"state": "the state that the screen shows", "prompt, rule, lines": ""},
    ),
    Output(
        ("replay",),
        "A list of recordings.",
        {
            "name, team": "",
            "session": "the session, for `--session`",
            "began, seconds": "when, and how long it lasted",
            "bytes, files, running, command": "",
        },
    ),
    Output(
        ("replay NAME --events",),
        "One object on each line.",
        {
            "at": "seconds into the recording",
            "kind, text": "the event",
            "*": "only of entries of the journal",
        },
    ),
    Output(
        ("replay NAME --search",),
        "One object on each line.",
        {"at, line": "the line, and when the screen showed it, in seconds into the recording"},
    ),
    Output(
        ("replay NAME --screen",),
        "",
        {
            "at": "seconds into the recording",
            "columns, rows, lines": "as of `peek`",
        },
    ),
    Output(
        ("agents",),
        "A list of profiles.",
        {
            "name, path": "the profile, and its file",
            "program, installed": "the program in PATH, and its version",
            "checked": "the versions that the profile was checked with",
            "commands": "those that select it",
            "reader, inject, fullscreen, hooks": "how relay reads it, whether relay types into it, whether "
            "it is full-screen, and its hook protocol",
            "ways": "how texts reach the installed agent, in order: `hooks`, `door`, `typed`",
            "mcp": "whether the installed agent gets [relay's tools](MCP.md#in-an-agent)",
            "rules": "the rules that detect its state",
        },
    ),
    Output(
        ("agents update", "agents reset"),
        "A list of pattern files.",
        {
            "name": "the profile",
            "outcome": "`taken`, `unchanged`, `refused` (relay would type into an agent that is not ready), "
            "`not agreed` (review the changes for dialogs; `--yes` accepts them), `tried` (another profile "
            "that it affects), or `reset`",
            "changes, dialogs": "only if it was tried: the lines that differ, and the changes for dialogs",
            "screens, worse": "only if it was tried: the number of recorded screens, and those on which it "
            "is worse",
            "worse.screen, worse.was, worse.before, worse.after": "only of those: the screen, its true "
            "state, and the verdicts",
        },
    ),
    Output(
        ("hooks list",),
        "",
        {
            "rules, rules.id, rules.name": "the rules, in firing order",
            "rules.event, rules.matcher": "when one runs",
            "rules.type, rules.what": "`command` or `prompt`, and the start of it",
            "rules.timeout, rules.async": "seconds, and whether it runs in the background",
            "rules.file, rules.line, rules.origin, rules.shape": "its file and line, whose file that is, "
            "and in which form",
            "rules.enabled": "whether it is enabled",
            "warnings": "",
        },
    ),
    Output(
        ("hooks test",),
        "JSON even without `--json`.",
        {
            "event, outcome": "the event and the result: `allow`, `block`, ...",
            "matched_rule_count": "how many rules it matched",
            "warnings": "",
            "attachments, attachments.attachment_type, attachments.content, attachments.rule": "only with "
            "an entry each: the output of rules",
            "blocking_error, stop_reason": "why it is blocked, and why the turn ends",
            "additional_contexts, system_message": "texts for the agent, and for the user",
            "suppress_output": "whether the contexts are hidden from the user",
            "prevent_continuation": "only of events other than Stop: whether the turn ends",
            "force_continue, follow_up_message": "only of Stop: whether the agent continues, and with which "
            "prompt",
            "action, reason, updated_input": "only of events other than Stop and UserPromptSubmit: the "
            "decision, and the changed input",
            "rules, rules.id, rules.name": "the rules that ran",
            "rules.exit_code, rules.problem, rules.output_preview": "how each ended, and its output",
            "rules.duration_ms, duration_ms": "milliseconds",
        },
    ),
    Output(
        ("hooks disable", "hooks enable", "hooks reload"),
        "A list of rules (not of `reload`), and then of running sessions.",
        {
            "outcome": "`disabled` or `enabled` for a rule; `reloaded` for a session, or `failed`: it keeps "
            "its old rules",
            "id, event, rule": "only of a rule: its id, its event and its name",
            "name, team, rules": "only of a session: its agent, and how many of its rules are enabled",
            "warnings": "only of `reload`: mistakes in the files",
            "error": "",
        },
    ),
    Output(
        ("init",),
        "A list of files.",
        {
            "file": "",
            "outcome": "`written`, or `kept`: it existed already",
            "agents": "only of a relay.toml that was written: its agents",
        },
    ),
    Output(
        ("trust",),
        "A list of files.",
        {
            "file": "",
            "outcome": "`trusted` or `failed`",
            "sha256, notes": "only with `trusted`: the digest of its content, and notes about it",
            "error": "",
        },
    ),
    Output(
        ("service status",),
        "",
        {
            "lingering": "whether services start before you log in; `null` if unknown",
            "services": "the installed services",
            "services.name, services.file, services.fleet": "the service, its file, and the fleet file",
            "services.enabled": "whether it is enabled; `null` if unknown",
            "services.last, services.failed, services.at": "how its last run ended, whether it failed, and "
            "when, as the service manager reports it",
            "services.problems": "what will prevent it from starting the agents",
        },
    ),
    Output(
        ("service install", "service remove"),
        "",
        {
            "name, file, fleet": "the service, its file, and the fleet file",
            "outcome": "`installed` or `removed`",
        },
    ),
    Output(
        ("broker status", "broker start"),
        "",
        {
            "running, host, port, url, pid": "",
            "kind": "`embedded`, or the kind of your own broker",
            "problem": "only of a broker that does not answer: why",
        },
    ),
    Output(("broker stop",), "", {"stopped": "whether one was running"}),
    Output(
        ("broker acl",),
        "",
        {
            "kind": "`mosquitto` or `nats`",
            "users": "",
            "files": "those that `-o` has written",
            "text": "without `-o`: the list, without passwords",
        },
    ),
    Output(
        ("broker credentials export",),
        "",
        {"file, users": ""},
    ),
    Output(
        ("broker credentials import",),
        "A list of agents.",
        {"user": "", "outcome": "`imported`"},
    ),
    Output(
        ("doctor",),
        "A list of checks.",
        {"name, detail": "the check, and what it found", "result": "`ok`, or how bad it is"},
    ),
    Output(
        ("doctor --report",),
        "",
        {
            "versions, versions.*": "of relay, Python and relay's dependencies",
            "platform, platform.*, terminal, terminal.*": "the platform and the terminal",
            "agents": "the installed ones",
            "agents.name, agents.version, agents.checked": "only with an entry each: the profile, the "
            "version, and whether relay was checked with it",
            "settings, settings.*": "only with an entry each: settings that differ from their defaults",
            "checks": "how many checks were made",
            "findings, findings.name, findings.result, findings.detail": "the checks that did not pass",
            "problems, problems.time, problems.event": "the last problems in the journal",
            "problems.about, problems.about.*": "only with an entry each: its details",
        },
    ),
)
"""All outputs, in the order of the page."""
