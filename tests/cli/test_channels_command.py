"""`relay join`, `relay leave` and `relay channels`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.home import Home
from relay.messaging.ledger import Ledger
from support import Relay

AGENT = {"RELAY_NAME": "Alice", "RELAY_TEAM": "default"}


def test_a_user_joins_and_leaves_and_adds_an_agent(relay: Relay) -> None:
    assert relay("channels").stdout.startswith("There are no channels.")
    assert relay("join", "ops").stdout == "You are in #ops now.\n"
    assert relay("join", "#OPS").stdout == "You are in #ops already.\n"
    assert relay("join", "-n", "Bob", "#ops").stdout == "Bob is in #ops now.\n"
    assert relay("channels").stdout.splitlines()[1].split(maxsplit=2) == ["#ops", "default", "Bob, you"]
    assert json.loads(relay("channels", "--json").stdout) == [
        {"channel": "ops", "team": "default", "members": ["Bob", "you"]}
    ]
    assert relay("leave", "ops").stdout == "You are no longer in #ops.\n"
    assert relay("leave", "--name", "bob", "Ops").stdout == "bob is no longer in #Ops.\n"
    assert json.loads(relay("channels", "--json").stdout) == []


def test_an_unknown_name_may_join_with_a_warning(home: Path, relay: Relay) -> None:
    with Ledger(Home.from_env({"RELAY_HOME": str(home)}).ensure().ledger) as ledger:
        ledger.registry.register("default", "Bob")
    assert relay("join", "-n", "bob", "ops").stderr == ""
    joined = relay("join", "-n", "Bbo", "ops")
    assert joined.stdout == "Bbo is in #ops now.\n"
    assert joined.stderr == "No agent called Bbo was ever in team default; did you mean Bob?\n"
    assert json.loads(relay("channels", "--json").stdout)[0]["members"] == ["Bbo", "Bob"]


def test_an_agent_sees_only_the_channels_of_its_team(relay: Relay) -> None:
    relay("join", "-n", "Bob", "-t", "red", "ops")
    relay("join", "-n", "Bob", "dev")
    inside = {**AGENT, "RELAY_SOCKET": "/nowhere"}
    listed = json.loads(relay("channels", "--json", env=inside).stdout)
    assert [each["channel"] for each in listed] == ["dev"]
    refused = relay("channels", "-t", "red", env=inside, check=False)
    assert (refused.returncode, "the channels of its own team only" in refused.stderr) == (1, True)


def test_channels_of_different_teams_are_separate(relay: Relay) -> None:
    relay("join", "-n", "Bob", "-t", "red", "ops")
    relay("join", "-n", "Bob", "dev", env={"RELAY_TEAM": "blue"})
    listed = json.loads(relay("channels", "--json").stdout)
    assert [(each["team"], each["channel"]) for each in listed] == [("blue", "dev"), ("red", "ops")]
    assert [each["channel"] for each in json.loads(relay("channels", "--json", "-t", "red").stdout)] == [
        "ops"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("leave", "osp"), "'you' is not in #osp. Did you mean #ops?"),
        (("leave", "-n", "Bob", "ops"), "'Bob' is not in #ops. It is in no channel."),
        (("join", "a b"), "'a b' is not a valid channel"),
        (("join", ""), "'' is not a valid channel"),
        (("join", "-n", "#ops", "ops"), "'#ops' is not a valid name"),
    ],
)
def test_an_error_is_explained_and_changes_nothing(
    relay: Relay, arguments: tuple[str, ...], message: str
) -> None:
    relay("join", "ops")
    before = relay("channels", "--json").stdout
    done = relay(*arguments, check=False)
    code = 2 if "not a valid" in message else 1
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert relay("channels", "--json").stdout == before


@pytest.mark.parametrize("command", ["join", "leave"])
@pytest.mark.parametrize("option", [("--name", "Bob"), ("--team", "other")])
def test_an_agent_cannot_join_or_leave_for_another(
    relay: Relay, command: str, option: tuple[str, str]
) -> None:
    refused = relay(command, *option, "ops", env=AGENT, check=False)
    assert refused.returncode == 1
    assert "an agent can only join and leave channels itself" in refused.stderr
