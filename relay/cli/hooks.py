"""Show, test, disable and reload the rules of hooks.json files.

`list` shows the rules that apply to an agent started here, in firing order, and mistakes in the files;
`list NAME` shows those of a running session. `test` runs an event through them. `disable` and `enable`
switch a rule off and on, by its id or name, for every session in this home; `reload` makes sessions read the
files again. Only the user may run the last three: a wrapped agent may not.

`test` reads the event from standard input: Claude Code's own JSON, or {"event": EVENT, "data": {...}}. It
prints {"event", "outcome", "matched_rule_count", "warnings", "attachments", ..., "rules": [{"id", "name",
"exit_code", "duration_ms", "problem", "output_preview"}], "duration_ms"}, together with the combined result:
for UserPromptSubmit blocking_error, prevent_continuation, stop_reason and additional_contexts; for Stop also
force_continue and follow_up_message; for the other events action, reason and updated_input. The exit code
is 0 whatever the rules decide, and 1 if relay cannot read one of the files.

  relay hooks list
  relay hooks disable guard.py
  echo '{"tool_name": "Bash", "tool_input": {"command": "rm -rf /"}}' | relay hooks test PreToolUse
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relay.agents import kinds
from relay.agents.hook_event import EVENTS as NATIVE
from relay.cli.arguments import add_actions, add_json, add_names, add_team, agent_name
from relay.cli.output import Outcomes, print_json
from relay.control.guard import user_only
from relay.control.sessions import SessionInfo, find, live
from relay.dataclass import replace
from relay.errors import RelayError, UsageError
from relay.home import Home
from relay.hooks.trust import Trust
from relay.injection.layout import MAX_HOOK_BYTES
from relay.names import did_you_mean, unique
from relay.redaction import redact
from relay.rules.aggregate import Fired, aggregate, outcome
from relay.rules.engine import Engine
from relay.rules.event import EVENTS, RuleEvent, from_native
from relay.rules.rule import Rule
from relay.rules.rule_book import FILE, RuleBook, disabled, public, switch
from relay.rules.startable import unstartable
from relay.rules.turn_end import Ending, stop_outcome
from relay.settings import load as load_settings
from relay.storage.journal import preview
from relay.text import count, visible

_SHORTEST = 4  # minimum characters to abbreviate an id; fewer may be a misspelt name

REREAD_TIMEOUT = 15.0
"""Seconds a session has to reread its files."""


def configure(parser: argparse.ArgumentParser) -> None:
    action = add_actions(parser)

    def files(it: argparse.ArgumentParser, help: str) -> None:
        it.add_argument("--rules", action="append", default=[], type=Path, metavar="FILE", help=help)

    shown = action(
        "list", "Show the rules that apply here or in a running session, and any mistakes in them."
    )
    shown.add_argument(
        "name", nargs="?", type=agent_name, metavar="NAME", help="the session, as `relay ps` lists it"
    )
    add_team(shown)
    files(shown, "also load this hooks.json")
    add_json(shown, "print a JSON object")
    tried = action("test", "Run an event from standard input through the rules, and print the result.")
    tried.add_argument("event", metavar="EVENT", help=f"one of {', '.join(EVENTS)}")
    files(tried, "use the rules in this hooks.json instead of those that apply here")
    tried.add_argument(
        "--agent",
        default="",
        choices=kinds.hooked(),
        metavar="KIND",
        help=f"read the event in this agent's format: {', '.join(kinds.hooked())}",
    )
    for name, help in (("disable", "Switch rules off."), ("enable", "Switch rules on again.")):
        switched = action(name, help)
        switched.add_argument(
            "rules_named",
            nargs="+",
            metavar="RULE",
            help="its id, how the id begins, its name, or its place, such as hooks.json:4",
        )
        files(switched, "also look in this hooks.json")
        add_json(switched, "print the outcome for each rule and each session, as a JSON list")
    reloaded = action("reload", "Make running sessions reload their hooks.json files.")
    add_names(reloaded, "the sessions (default: all in this home)")
    add_team(reloaded)
    add_json(reloaded, "print the outcome for each session, as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    match args.action:
        case "list":
            return _list(home, args)
        case "test":
            return _test(home, args)
    what = f"hooks {args.action}"
    advice = f"The user can, with `relay {what}` in a terminal."
    user_only(home, what, f"an agent may not {args.action} rules. {advice}")
    with Outcomes(args) as report:
        if args.action == "reload":
            _reload(home, args, report)
        else:
            _switch(home, args, report, off=args.action == "disable")
    return 1 if report.failed else 0


def _list(home: Home, args: argparse.Namespace) -> int:
    if args.name is None:
        book = RuleBook.load(home, Path.cwd(), args.rules)
        found = book.public()
        found["warnings"] += map(str, unstartable(filter(book.enabled, book.rules), Path.cwd()))
    elif args.rules:
        raise UsageError("a running session has its own rules: give either NAME or --rules.")
    else:
        found = find(home, args.name, args.team).ask({"op": "rules"})
    if args.json:
        print_json(found)
        return 0
    for rule in found["rules"]:
        print(visible(_row(rule)))
        print(visible(f"          {rule['file']}:{rule['line']} ({rule['origin']}): {rule['what']}"))
    if not found["rules"]:
        print(f"No rules apply here. Write them in {home.config / FILE}, or in a project's {FILE}.")
    for warning in found["warnings"]:
        print(f"Warning: {visible(warning)}")
    return 0


def _row(rule: dict[str, Any]) -> str:
    matcher = "" if rule["matcher"] == "*" else f"  {rule['matcher']}"
    extent = "" if rule["type"] == "prompt" else f"  {rule['timeout']:g} s"
    waited = "  async" if rule["async"] else ""
    switch = "on" if rule["enabled"] else "off"
    kind = f"{rule['type']}{extent}{waited}"
    return f"{rule['id']:<8}  {switch:<3}  {rule['event']}{matcher}  {kind}  {rule['name']}"


def _reload(home: Home, args: argparse.Namespace, report: Outcomes) -> None:
    if args.names:
        chosen = [find(home, name, args.team) for name in unique(args.names)]
    elif not (chosen := live(home, args.team)):
        report.say("No session is running.")
    for session in chosen:
        _tell(session, "reload_rules", report)


def _switch(home: Home, args: argparse.Namespace, report: Outcomes, *, off: bool) -> None:
    sessions = live(home)
    known = {rule["id"]: rule for rule in _known(home, args.rules, sessions)}
    chosen: dict[str, None] = {}
    for word in args.rules_named:
        ids = _named(word, known)
        if not ids and not off and word in disabled(home):
            ids = [word]  # of a rule that is no longer in a file, or not in one seen from here
        if not ids:
            names = [rule["name"] for rule in known.values()]
            hint = did_you_mean(word, [*known, *names])
            raise RelayError(f"there is no rule {word!r}. {hint}`relay hooks list` lists them.")
        chosen |= dict.fromkeys(ids)
    switch(home, chosen, off=off)
    for id in chosen:
        event, name = (known[id]["event"], known[id]["name"]) if id in known else (None, None)
        said = f"{id} ({event}, {name})" if id in known else id
        outcome = "disabled" if off else "enabled"
        report.done(
            visible(f"{said} is {'off' if off else 'on'}."), id=id, event=event, rule=name, outcome=outcome
        )
    for session in sessions:
        _tell(session, "switch_rules", report)


def _named(word: str, known: dict[str, dict[str, Any]]) -> list[str]:
    """Return the ids of the rules that `word` names: by id, name, place, or the start of one id."""
    if word in known:
        return [word]
    if named := [id for id, rule in known.items() if word == rule["name"]]:
        return named
    path, _, line = word.rpartition(":")
    if path and line.isdecimal():
        there = [id for id, rule in known.items() if str(rule["line"]) == line and _is(path, rule["file"])]
        files = dict.fromkeys(known[id]["file"] for id in there)
        if len(files) > 1:
            raise RelayError(f"{word!r} matches several files: {', '.join(files)}. Give more of the path.")
        return there
    begun = [id for id in known if id.startswith(word)] if len(word) >= _SHORTEST else []
    if len(begun) > 1:
        raise RelayError(f"{word!r} matches several ids: {', '.join(begun)}. Give more of the id.")
    return begun


def _is(path: str, file: str) -> bool:
    """Return True if `path`, relative to this folder, is `file`, or if `file` ends with `path`."""
    words = Path(path).parts
    return os.path.normpath(Path.cwd() / path) == file or Path(file).parts[-len(words) :] == words


def _known(home: Home, named: Sequence[Path], sessions: Sequence[SessionInfo]) -> list[dict[str, Any]]:
    """Return the rules in force here, and those that running sessions use."""
    rules: list[dict[str, Any]] = [public(rule) for rule in RuleBook.load(home, Path.cwd(), named).rules]
    for session in sessions:
        try:
            rules += session.ask({"op": "rules"})["rules"]
        except RelayError:
            continue  # it has just ended, or hangs; `_tell` reports it
    return rules


def _tell(session: SessionInfo, operation: str, report: Outcomes) -> None:
    """Make `session` reread its rules; report how many it has, and mistakes in the files."""
    fields = {"name": session.name, "team": session.team}
    with report.attempt(f"{session.name} keeps its previous rules", **fields):
        answer = session.ask({"op": operation}, REREAD_TIMEOUT)
        on = sum(rule["enabled"] for rule in answer["rules"])
        report.done(f"{session.name} has {count(on, 'rule')}.", **fields, outcome="reloaded", rules=on)
        if operation == "reload_rules":
            warnings = answer["warnings"]
            report.also("\n".join(f"    {visible(each)}" for each in warnings), warnings=warnings)


def _test(home: Home, args: argparse.Namespace) -> int:
    event = _event(args.event, args.agent)
    book = _book(home, args.rules) if args.rules else RuleBook.load(home, Path.cwd())
    warnings = [str(warning) for warning in book.warnings]
    begun = time.monotonic()
    fired = asyncio.run(_fire(book, event, warnings))
    duration = time.monotonic() - begun
    warnings += _too_long(fired)
    found = aggregate(fired)
    report = {
        "event": fired.event.name,
        "outcome": _outcome(home, fired),
        "warnings": warnings,
        "attachments": found.pop("messages"),
        **found,
        "rules": [
            {
                "id": ran.rule.id,
                "name": ran.rule.name,
                "exit_code": ran.exit_code,
                "duration_ms": round(ran.duration * 1000, 1),
                "problem": ran.problem,
                "output_preview": preview(redact(ran.stdout or ran.stderr)),
            }
            for ran in fired.ran
        ],
        "duration_ms": round(duration * 1000, 1),
    }
    print_json(report)
    return 0


def _outcome(home: Home, fired: Fired) -> str:
    """Return the outcome of the rules in a session with the settings of this folder."""
    if fired.event.name != "Stop":
        return outcome(fired)
    settings, _ = load_settings(home, Path.cwd(), Trust(home).covers)
    return stop_outcome(fired, Ending.from_payload(fired.event.data, settings.continuations))


def _book(home: Home, named: Sequence[Path]) -> RuleBook:
    """Return the rules of the files `named`. Raise RelayError for an unreadable one: it would not guard."""
    for path in named:
        if not path.is_file():
            raise RelayError(f"there is no file {os.fspath(path)!r}. Check the path given to --rules.")
    book = RuleBook.of(home, named)
    for warning in book.warnings:
        if warning.unread:
            raise RelayError(str(warning))
    return book


async def _fire(book: RuleBook, event: RuleEvent, warnings: list[str]) -> Fired:
    """Run the rules for `event`. Wait for background rules, too; their answers have no effect."""

    def select(event: RuleEvent) -> list[Rule]:
        return book.select(event, warnings.append)

    rules = select(event)
    engine = Engine(Path.cwd(), os.environ)
    behind = [replace(rule, background=False) for rule in rules if rule.background]
    try:
        fired = await engine.run([rule for rule in rules if not rule.background], event, select=select)
        watched = [ran for rule in behind for ran in (await engine.run([rule], event)).ran]
    finally:
        await engine.close()
    return Fired(event, (*fired.ran, *(replace(ran, attachments=(), results=()) for ran in watched)))


def _too_long(fired: Fired) -> Iterator[str]:
    """Yield a warning for each context that a session would refuse."""
    for ran in fired.ran:
        for result in ran.results:
            size = len((result.context_injection or "").encode("utf-8", "surrogatepass"))
            if size > MAX_HOOK_BYTES:
                yield (
                    f"{ran.rule.place}: {ran.rule.name}: its context has {size:,} bytes, and a session "
                    f"accepts at most {MAX_HOOK_BYTES:,}. "
                    "Write it to a file, and name the file in the context."
                )


def _event(name: str, agent: str) -> RuleEvent:
    # PreToolUse, preToolUse and pre_tool_use are the same event.
    key = name.replace("_", "").replace("-", "").casefold()
    found = next((known for known in EVENTS if known.casefold() == key), None)
    if found is None:
        hint = did_you_mean(name, EVENTS)
        raise UsageError(f"there is no event {name!r}. {hint}The events are {', '.join(EVENTS)}.")
    wanted = f"Give the event as a JSON object on standard input: echo '{{}}' | relay hooks test {found}"
    if sys.stdin.isatty():
        raise UsageError(f"no event was given. {wanted}")
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise UsageError(f"standard input is empty. {wanted}")
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"standard input is not JSON ({error}). {wanted}") from None
    if not isinstance(data, dict):
        raise UsageError(f"standard input is JSON, but not an object. {wanted}")
    named = data.get("hook_event_name", found)
    if isinstance(data.get("data"), dict) and "event" in data:
        named, data = data["event"], data["data"]
    # Each agent has its own names for events; without --agent, they are those of rules.
    kind = kinds.find(agent)
    theirs = {native: own for own, native in (kind.events or NATIVE).items()}.get(NATIVE[found])
    if theirs is None:
        raise UsageError(f"{agent} does not report {found}. `relay hooks test --help` lists the agents.")
    if named not in (found, theirs):
        raise UsageError(f"the event on standard input is {named!r}, not {found}. Give the same event twice.")
    own = {"hook_event_name": found, "session_id": "test", "cwd": os.fspath(Path.cwd())}
    native = kind.parse(theirs, json.dumps(data)) if agent else None
    event = from_native(native) if native else None
    return RuleEvent(found, {**own, **(event.data if event else data)}, agent)
