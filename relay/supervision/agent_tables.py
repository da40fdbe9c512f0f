"""The tables inside an agent's table: actions, schedule, worktree, dependencies."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, get_args

from relay.dataclass import MISSING, fields, replace
from relay.supervision.fleet import Condition
from relay.supervision.policy import Action, ActionName
from relay.supervision.restart import LIMITS, NEEDS_USER
from relay.supervision.schedule import Overlap, Schedule, check_cron, duration, zone_of
from relay.supervision.worktree import Cleanup, WorktreeSpec
from relay.values import (
    FLAG,
    TEXT,
    WORDS,
    Invalid,
    Spot,
    TableKey,
    ValueKind,
    checked,
    choice,
    number,
    record,
    several,
    shown,
    table,
    whole,
)

ACTIONS: Mapping[str, tuple[ActionName, ...]] = {
    "on_idle": ("nudge", "gate", "done", "fail", "hold", "escalate", "run", "stop", "none"),
    "on_prompt": ("escalate", "gate", "fail", "hold", "run", "stop", "none"),  # none of them answers it
    "on_error": (
        "wait",
        "resume",
        "restart",
        "nudge",
        "done",
        "fail",
        "hold",
        "escalate",
        "run",
        "stop",
        "none",
    ),
}
"""The actions allowed for each event."""

_LAST: tuple[ActionName, ...] = ("escalate", "done", "fail", "hold", "stop", "none")
_WITH_COMMAND: tuple[ActionName, ...] = ("gate", "run")


_CLASSES = choice([*sorted(LIMITS | NEEDS_USER), "other"])
_ERROR_CLASS = ValueKind(_CLASSES.form, lambda value, spot: value and _CLASSES.read(value, spot))


def keys_of(kind: type, keys: Mapping[str, tuple[ValueKind, str]]) -> dict[str, TableKey]:
    """Return the keys of a table that is read into the dataclass `kind`, which defines their defaults."""
    found = {}
    for each in fields(kind):
        if each.name in keys:
            read, help = keys[each.name]
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            found[each.name] = TableKey(read, "" if default is MISSING else as_toml(default), help)
    return found


def as_toml(value: object) -> str:
    """Return the default of a field as written in a fleet file."""
    if value is None:  # on_idle and on_prompt
        return '"auto"'
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _action_keys(event: str) -> dict[str, TableKey]:
    keys: dict[str, tuple[ValueKind, str]] = {
        "action": (choice(ACTIONS[event]), "the action; required"),
        "text": (TEXT, "the text that a nudge types"),
        "run": (TEXT, "the command of `run` and `gate`, for `/bin/sh`"),
        "attempts": (whole(least=1), "attempts before `then`"),
        "cooldown": (number("seconds"), "the time between attempts"),
        "then": (choice(_LAST), "the action after the last attempt"),
    }
    if event == "on_error":
        keys["match"] = (_ERROR_CLASS, "the class of error; default: any")
    return keys_of(Action, keys)


ACTION_KEYS = _action_keys("on_error")
_NAMED = replace(ACTION_KEYS["action"].kind, form="the name of an action")
ACTION_KEYS["action"] = replace(ACTION_KEYS["action"], kind=_NAMED)  # each event has its own actions


def action(event: str) -> ValueKind:
    """Return the kind of actions for `event`: the name of an action, or a table."""
    keys = _action_keys(event)
    named = event != "on_error"

    def read(value: Any, spot: Spot) -> Any:
        if named and value == "auto":
            return None
        if named and isinstance(value, str):
            options = ("auto", *ACTIONS[event])
            value = {"action": choice(options).read(value, spot)}
        elif not isinstance(value, dict):
            raise Invalid(f"{spot.name} must be {form}, not {shown(value)}.")
        return record(keys, make).read(value, spot)

    def make(given: dict[str, Any], spot: Spot) -> Action:
        if "action" not in given:
            raise Invalid(f'{spot.name} needs an action, like {{ action = "{ACTIONS[event][0]}" }}.')
        action = Action(**given)
        if action.action in _WITH_COMMAND and not action.run.strip():
            example = f'{{ action = "{action.action}", run = "make test" }}'
            raise Invalid(f"{spot.name}: {action.action} needs a command, like {example}.")
        for key, owners in (("run", _WITH_COMMAND), ("text", ("nudge",))):
            if key in given and action.action not in owners:
                raise Invalid(
                    f"{spot.name}: {key} belongs to {' and '.join(owners)}, not to {action.action}."
                )
        return action

    form = 'the name of an action, "auto", or a table' if named else "a table"
    return ValueKind(form, read)


def _every(value: Any, spot: Spot) -> float:
    if isinstance(value, str):
        try:
            value = duration(value)
        except ValueError as error:
            raise Invalid(f"{spot.name}: {error}") from None
    return float(number("seconds", least=1).read(value, spot))


SCHEDULE_KEYS = keys_of(
    Schedule,
    {
        "every": (ValueKind('a duration like "1h30m", or seconds', _every), "the time between starts"),
        "cron": (checked(check_cron, "a cron expression"), "five fields, like `0 9 * * 1-5`"),
        "timezone": (
            checked(zone_of, "a time zone"),
            "the time zone of `cron`, like `Europe/Berlin`; empty: the system's",
        ),
        "overlap": (choice(get_args(Overlap)), "`skip`: do not start while the agent is still running"),
        "catch_up": (FLAG, "whether to make up for a missed start, once"),
    },
)


def _schedule(given: dict[str, Any], spot: Spot) -> Schedule:
    if bool(given.get("every")) == bool(given.get("cron")):
        raise Invalid(f'{spot.name} needs either every or cron, like {{ every = "1h" }}.')
    if "timezone" in given and "cron" not in given:
        raise Invalid(f"{spot.name}: timezone works only with cron. Remove it.")
    return Schedule(**given)


SCHEDULE = record(SCHEDULE_KEYS, _schedule)


def _template(*filled_in: str) -> Callable[[str], None]:
    """Return a function that raises ValueError for text with fields other than these."""
    fields_shown = ", ".join(f"{{{name}}}" for name in filled_in)

    def check(text: str) -> None:
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}. Write {{{{ for a brace.") from None
        for _, name, spec, conversion in parts:
            if name is not None and (name not in filled_in or spec or conversion):
                raise ValueError(f"only {fields_shown} are replaced, not {{{name}}}.")
        if not text.strip():
            raise ValueError("it is empty. Remove it, or write a name.")

    return check


def _inside(value: Any, spot: Spot) -> str:
    text: str = TEXT.read(value, spot)
    path = PurePath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Invalid(f"{spot.name} must be a path within the repository, like '.env', not {shown(value)}.")
    return text


_INSIDE = several(ValueKind("a path", _inside), "a list of paths within the repository")

WORKTREE_KEYS = keys_of(
    WorktreeSpec,
    {
        "path": (
            checked(_template("repo", "branch", "agent"), "a path"),
            "the folder, relative to the top of the main worktree",
        ),
        "branch": (
            checked(_template("repo", "agent"), "a branch"),
            "the branch to check out; if missing, created from `base`, or if that is `HEAD`, from a remote's "
            "branch",
        ),
        "base": (TEXT, "where a new branch starts"),
        "copy": (_INSIDE, "files that git does not track, copied into it"),
        "link": (_INSIDE, "files that git does not keep, shared with it by symbolic links"),
        "setup": (
            ValueKind(WORDS.form, lambda value, spot: tuple(WORDS.read(value, spot))),
            "commands for `/bin/sh`, run in it until one fails",
        ),
        "setup_timeout": (number("seconds", least=1), "the time that each of them may take"),
        "cleanup": (choice(get_args(Cleanup)), "`merged`: removed once it is clean and its branch merged"),
    },
)


def _worktree(value: Any, spot: Spot) -> dict[str, Any] | None:
    """Return the given keys, none for true, None for false; those of [defaults] are added later."""
    if value is False:
        return None
    return {} if value is True else table(value, spot, WORKTREE_KEYS)


WORKTREE = ValueKind("a table, true or false", _worktree)


def _depends_on(value: Any, spot: Spot) -> dict[str, Condition]:
    if isinstance(value, list):
        value = dict.fromkeys(WORDS.read(value, spot), "ready")
    if not isinstance(value, dict):
        raise Invalid(f'{spot.name} must be a table like {{ db = "ready" }}, or a list, not {shown(value)}.')
    condition = choice(get_args(Condition))
    found = {}
    for name, each in value.items():
        with spot.at(name) as here:
            found[name] = condition.read(each, here)
    return found


DEPENDS_ON = ValueKind("a table, or a list of names", _depends_on)
