"""Every key of a fleet file: the kind of its value, its default, its help (docs/FLEET.md; a test compares).

The keys of `[defaults]` are those of an agent.
"""

from __future__ import annotations

from typing import get_args

from relay import names
from relay.dataclass import fields, replace
from relay.settings import TABLES, Settings
from relay.supervision.agent_tables import DEPENDS_ON, SCHEDULE, WORKTREE, action, as_toml, keys_of
from relay.supervision.agent_values import (
    CHANNEL,
    COMMAND,
    ENV_FILE,
    ENVIRONMENT,
    EXIT_CODES,
    FILE,
    FOLDER,
    TASK,
    TASK_FILE,
)
from relay.supervision.policy import Restart, Resume, Supervision
from relay.values import FLAG, TEXT, TableKey, ValueKind, choice, number, several, whole

FLEET_KEYS = {
    "team": TableKey(
        ValueKind("a team's name", lambda value, spot: names.validate(TEXT.read(value, spot), "team")),
        "",
        "the team of all agents; by default the name of the file's folder",
    ),
    "max_running": TableKey(whole(), "8", "agents that may run at once; others wait"),
    "start_interval": TableKey(number("seconds"), "5", "the time between two starts, because logins race"),
    "spawn": TableKey(FLAG, "false", "its agents may start others"),
}

_BEFORE = {
    "run": TableKey(COMMAND, "", "the command; required"),
    "task": TableKey(TASK, '""', "the first prompt; not repeated when a conversation is resumed"),
    "task_file": TableKey(TASK_FILE, "", "a file with the task, instead of `task`"),
    "cwd": TableKey(FOLDER, '"."', "the folder it runs in"),
    "env": TableKey(ENVIRONMENT, "{}", "environment variables"),
    "env_file": TableKey(
        several(ENV_FILE, "the path of a file, or a list", alone=True),
        "[]",
        "files of lines `NAME=VALUE`; `env` wins",
    ),
    "channels": TableKey(
        several(CHANNEL, "a list of channels"), "[]", 'the channels it joins, like `"#ops"`'
    ),
    "rules": TableKey(
        several(FILE, "a list of files"), "[]", "hooks.json files, as with `relay wrap --rules`"
    ),
    "autostart": TableKey(
        FLAG, "true", "`false`: it starts only when you name it or another agent depends on it"
    ),
    "depends_on": TableKey(
        DEPENDS_ON,
        "{}",
        "agents that must be `started`, `ready`, `idle`, `done` or `exited_ok` first; a list means `ready`",
    ),
}

SUPERVISION_KEYS = keys_of(
    Supervision,
    {
        "restart": (choice(get_args(Restart)), "when to restart it; agents also quit on purpose"),
        "success_exit_codes": (EXIT_CODES, "exit codes that are not failures"),
        "max_restarts": (whole(), "restarts allowed within `restart_window`; one more exit means failure"),
        "restart_window": (number("seconds", least=1), "the period in which restarts count"),
        "backoff": (number("seconds"), "the wait before the first restart; doubled each time, with jitter"),
        "backoff_max": (number("seconds"), "the longest wait before a restart"),
        "stable_after": (number("seconds"), "the restart count resets after this time and a finished turn"),
        "start_timeout": (
            number("seconds", least=1),
            "the time allowed until it is first ready; a dialog stops the clock",
        ),
        "resume": (
            choice(get_args(Resume)),
            "a restarted agent continues its conversation; `require`: otherwise it is held",
        ),
        "account": (TEXT, "the account for limits and logins; agents of one account share them"),
        "idle_grace": (number("seconds"), "how long an agent with a task may be idle before `on_idle`"),
        "max_unattended_turns": (whole(), "turns without your input; then it is held"),
        "max_cost": (number("US dollars"), "the cost allowed; then it is held"),
        "max_tokens": (whole(most=10**15), "tokens of all kinds; then it is held"),
        "max_runtime": (number("seconds"), "how long it may run; then it is held"),
        "on_idle": (action("on_idle"), "the action when it is idle"),
        "on_prompt": (action("on_prompt"), "the action when it has a question; nothing approves for you"),
        "on_error": (several(action("on_error"), "a list of tables"), "the action after an error, by class"),
    },
)

_AFTER = {
    "schedule": TableKey(SCHEDULE, "", "when it starts on a schedule"),
    "worktree": TableKey(
        WORKTREE,
        "",
        "its own git worktree; `true`: with the defaults; `false`: none, even if [defaults] has one",
    ),
}

RESTART: Restart = "on-failure"
"""The default of `restart` in a fleet file; `relay wrap` does not restart agents by default."""

AGENT_KEYS = {
    **_BEFORE,
    **SUPERVISION_KEYS,
    "restart": replace(SUPERVISION_KEYS["restart"], default=as_toml(RESTART)),
    **_AFTER,
}

SETTINGS = {each.name for each in fields(Settings)}


def elsewhere(name: str) -> str:
    """Return a sentence that says where a misplaced key of a fleet file belongs, or ""."""
    if name in FLEET_KEYS:
        return "It belongs below [fleet]."
    if name in AGENT_KEYS:
        return "It belongs below [defaults] or [agents.NAME]."
    if name in SETTINGS:
        return "It is a setting: put it above the first table."
    return "" if name not in TABLES else "Write it as its own table, not inside another."
