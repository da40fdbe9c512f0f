"""Rules for every command: exit codes, where errors are printed, `--json`, an unusable home."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest

from relay.cli import main
from relay.cli.main import COMMANDS, dispatch, parser_of
from relay.errors import InvalidName
from session.fake_agent import FakeAgent, messages, ps
from support import Relay, wait_until


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command and each action ("memory save") with its parser; not commands that have actions."""
    for name in COMMANDS:
        yield from _below(name, parser_of(name))


def _below(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    actions = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not actions or not actions[0].required:
        yield path, parser
    for each in actions:
        for name, below in each.choices.items():
            yield from _below(f"{path} {name}", below)


PATHS = [path for path, _ in parsers() if path not in {"wrap", "hook"}]  # these parse their own arguments


def assert_error(run: subprocess.CompletedProcess[str], code: int) -> None:
    """Assert that a command failed with `code`, and reported it as all commands do."""
    assert run.returncode == code, run.stderr
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1].startswith("relay")
    assert "Traceback" not in run.stderr


def test_an_unknown_option_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for path in PATHS:
        capsys.readouterr()  # drop the output of a row that failed
        with subtests.test(path):
            with pytest.raises(SystemExit) as ended:
                dispatch([*path.split(), "--no-such-option"])
            output = capsys.readouterr()
            assert (ended.value.code, output.out) == (2, "")
            assert re.match(rf"relay {path.split()[0]}( \w+)*: error: ", output.err.splitlines()[-1])


NAME_METAVARS = {"NAME", "TO", "NAME|FILE", "[TEAM/]NAME"}
"""The metavars of agents' names."""

OTHER_NAMES = {("agents reset", "names"), ("release", "--account")}
"""Names of other things: a profile, an account."""

ALLOWED = {("send", "to"): {"*"}, ("replay", "what"): {"a/b", "/x"}, ("doctor", "--as"): {"a/b"}}
"""What some arguments take besides names: everyone, files, a team."""


def name_arguments() -> Iterator[tuple[str, str]]:
    """Yield each command's options and arguments that take the name of an agent or a team."""
    for path, parser in parsers():
        for action in parser._actions:
            if path in PATHS and (action.metavar in NAME_METAVARS or action.dest in {"name", "team"}):
                found = path, action.option_strings[-1] if action.option_strings else action.dest
                if found not in OTHER_NAMES:
                    yield found


def test_an_empty_or_malformed_name_is_a_usage_error(subtests: pytest.Subtests) -> None:
    for path, argument in name_arguments():
        with subtests.test(f"{path} {argument}"):
            assert_names_are_checked(path, argument)


def assert_names_are_checked(path: str, argument: str) -> None:
    command = path.split()[0]
    parser = dict(_below(command, parser_of(command)))[path]
    before = []
    if not argument.startswith("-"):
        arguments = [action for action in parser._actions if not action.option_strings]
        preceding = arguments[: [action.dest for action in arguments].index(argument)]
        before = [str(next(iter(action.choices or ["x"]))) for action in preceding]
    for value in {"", "*", "Al*", "a/b", "/x", "..", "[a]"} - ALLOWED.get((path, argument), set()):
        words = [f"{argument}={value}"] if argument.startswith("-") else [*before, value]
        with pytest.raises(InvalidName, match=r"is not a valid (name|team); use letters") as error:
            parser.parse_args(words)
        assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "line",
    [
        ["stop", ""],
        ["stop", "Al*"],
        ["stop", "**x"],
        ["stop", "-t", "/x", "Alice"],
        ["stop", "--now", "--all", "-t", ""],
        ["restart", "--now", "Al*"],
        ["reload", ""],
        ["wrap", "-t", "", "true"],
        ["wrap", "-n", "*", "true"],
    ],
)
def test_an_invalid_name_affects_no_agent(line: list[str], shared: Relay) -> None:
    if not ps(shared):
        shared("wrap", "-d", "-n", "Alice", "-t", "web", "cat")
    before = [(row["session_pid"], row["agent_pid"]) for row in ps(shared)]
    assert_error(shared(*line, check=False), 2)
    assert [(row["session_pid"], row["agent_pid"]) for row in ps(shared)] == before


def test_a_hook_with_an_invalid_name_exits_with_1(relay: Relay) -> None:
    assert_error(relay("hook", "--name", "", "stop", check=False), 1)
    assert_error(relay("hook", "--team=a/b", "stop", check=False), 1)


def test_empty_variables_count_as_unset(relay: Relay) -> None:
    empty = {"RELAY_NAME": "", "RELAY_TEAM": "", "RELAY_SOCKET": "", "RELAY_SESSION": ""}
    relay("wrap", "-d", "-n", "Bob", "cat", env=empty)
    relay("send", "Bob", "hi", env=empty)
    assert [each["to"] for each in json.loads(relay("messages", "--json", env=empty).stdout)] == ["Bob"]
    assert relay("restart", "Bob", env=empty).stdout
    assert relay("release", "--all", "--json", env=empty).stdout == "[]\n"  # an agent may not


MISTAKES = [
    "no-such-command",
    "--no-such-option",
    "wrap",
    "wrap --no-such-option true",
    "wrap --config missing true",
    "wrap --rules missing true",
    "wrap -d --tty true",
    "wrap -n a/b true",
    "ps --no-such-option",
    "ps -t a/b",
    "stop",
    "reload",
    "drop",
    "send Bob",
    "join a/b",
    "hooks no-such-action",
    "memory save",
    "service",
]


def test_a_usage_error_exits_with_2_and_is_printed_on_standard_error(
    relay: Relay, subtests: pytest.Subtests
) -> None:
    for line in MISTAKES:
        with subtests.test(line):
            assert_error(relay(*line.split(), check=False), 2)


def test_a_failure_exits_with_1(relay: Relay, subtests: pytest.Subtests) -> None:
    for line in ("explain Bob", "stop Bob", "send Bob hi", "logs Bob", "retry 7f", "up"):
        with subtests.test(line):
            assert_error(relay(*line.split(), check=False), 1)


def test_an_unusable_home_is_a_failure(relay: Relay, subtests: pytest.Subtests) -> None:
    places = itertools.cycle(("/proc/none", "/dev/null/none", "/dev/null"))
    for line in ("ps", "ps --json", "usage", "events", "messages", "next", "stop --all"):
        with subtests.test(line):
            place = next(places)
            run = relay(*line.split(), env={"RELAY_HOME": place}, check=False)
            assert_error(run, 1)
            assert run.stderr.startswith(f"relay: cannot use the directory {place}")
            assert "RELAY_HOME" in run.stderr


def test_completion_works_without_a_home(relay: Relay) -> None:
    assert relay("completion", "bash", env={"RELAY_HOME": "/proc/none"}).stdout


def test_an_unknown_team_is_reported_with_a_suggestion(relay: Relay) -> None:
    """An unknown team is not an error: a script may look before its first agent starts."""
    relay("wrap", "-n", "Bob", "-t", "web", "true")
    run = relay("ps", "-t", "wbe")
    assert "No session is running in team wbe." in run.stdout
    assert run.stderr == "relay: no agent has run in team 'wbe'. Did you mean web? Teams: web.\n"
    assert relay("ps", "-t", "wbe", "--json").stdout == "[]\n"
    assert relay("ps", "-t", "WEB").stderr == ""


def test_nothing_to_stop_is_reported(relay: Relay) -> None:
    assert relay("stop", "--all").stdout == "No agent is running.\n"


@pytest.mark.parametrize(
    "line",
    [
        "stop --all",
        "reload --all",
        "drop --held",
        "release --all",
        "hooks reload",
        "agents reset",
        "up --due -f fleet/relay.toml",
    ],
)
def test_nothing_to_do_is_an_empty_list(line: str, relay: Relay) -> None:
    (relay.home / "fleet").mkdir()
    (relay.home / "fleet" / "relay.toml").write_text('[agents.Ann]\nrun = "cat"\n')
    relay("trust", "fleet/relay.toml")
    assert relay(*line.split(), "--json").stdout == "[]\n"


def test_next_prints_null_if_no_agent_needs_you(relay: Relay) -> None:
    run = relay("next", "--json", check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "null\n", "No agent needs you.\n")


def test_json_may_precede_the_action(relay: Relay) -> None:
    assert relay("agents", "--json", "reset").stdout == "[]\n"


def test_each_suggested_command_exists() -> None:
    known_commands = dict(parsers())
    for meant, words in main._MEANT.items():
        assert not {*words.split()} & {*COMMANDS}
        name, *rest = meant.split()
        if name in COMMANDS:
            known = main.parser_of(name)._option_string_actions if rest and rest[0] != "save" else {}
            assert all(each in known for each in rest if each.startswith("-")), meant
            assert meant in known_commands or not rest or rest[0].startswith("-"), meant
        else:
            assert meant == "--version"


NO_JSON = {
    "wrap": "its output is the agent's",
    "attach": "its output is the agent's",
    "top": "a screen; `ps` and `inbox` have it",
    "demo": "its output is the agents'",
    "hook": "an agent's own format",
    "mcp": "a protocol of its own",
    "web": "runs until it is ended",
    "completion": "prints a script",
    "broker run": "runs until it is ended",
    "hooks test": "a filter from JSON to JSON",
}
"""Commands without --json, and why."""


def test_each_command_that_lists_or_changes_something_has_json() -> None:
    without = {path for path, parser in parsers() if "--json" not in parser._option_string_actions}
    assert without == NO_JSON.keys()


def test_the_outcome_for_each_agent_is_printed_as_json(relay: Relay) -> None:
    for name in ("Ann", "Bob"):
        relay("wrap", "-d", "-n", name, "cat")
    (again,) = json.loads(relay("reload", "Ann", "--json").stdout)
    assert isinstance(again.pop("session_pid"), int)
    assert again == {"name": "Ann", "team": "default", "outcome": "reloaded"}
    (again,) = json.loads(relay("restart", "Ann", "--json").stdout)
    assert isinstance(again.pop("agent_pid"), int)
    assert again == {"name": "Ann", "team": "default", "outcome": "restarted", "resumed": False}
    stopped = json.loads(relay("stop", "--all", "--json").stdout)
    assert stopped == [{"name": name, "team": "default", "outcome": "ended"} for name in ("Ann", "Bob")]
    assert relay("stop", "--all", "--json").stdout == "[]\n"
    assert_error(relay("stop", "Ann", "--json", check=False), 1)


def test_changed_channels_and_messages_are_printed_as_json(relay: Relay) -> None:
    changed = {"name": "you", "channel": "ops", "changed": True}
    assert json.loads(relay("join", "#ops", "--json").stdout) == changed | {"member": True}
    again = json.loads(relay("join", "ops", "--json").stdout)
    assert again == changed | {"member": True, "changed": False}
    assert json.loads(relay("leave", "ops", "--json").stdout) == changed | {"member": False}
    relay("wrap", "-d", "-n", "Bob", "cat")
    relay("stop", "Bob")
    (sent,) = json.loads(relay("send", "--json", "Bob", "hi").stdout)
    (dropped,) = json.loads(relay("drop", sent["id"], "--json").stdout)
    assert dropped.pop("was") in {"queued", "sent", "stored"}
    assert dropped == {"id": sent["id"], "from": "you", "to": "Bob", "outcome": "dropped"}
    assert relay("drop", "--held", "--json").stdout == "[]\n"


def test_a_partial_failure_reports_the_outcome_for_each_message(relay: Relay) -> None:
    """All messages are dropped except one that is being typed."""
    FakeAgent(relay, "Bob").wrap("--busy")
    ids = [json.loads(relay("send", "--json", "Bob", text).stdout)[0]["id"] for text in ("one", "two", "six")]
    wait_until(lambda: {each["state"] for each in messages(relay)} == {"stored"})
    with sqlite3.connect(relay.home / "state" / "ledger.db") as ledger:
        ledger.execute("UPDATE messages SET injecting = 1 WHERE id = ?", (ids[1],))
    run = relay("drop", "--json", *ids, check=False)
    done = json.loads(run.stdout)
    assert run.returncode == 1
    assert [(each["id"], each["outcome"]) for each in done] == [
        (ids[0], "dropped"),
        (ids[1], "failed"),
        (ids[2], "dropped"),
    ]
    assert "it is being typed into Bob" in done[1]["error"]
    assert run.stderr == f"relay: {ids[1][:8]}: {done[1]['error']}\n"
