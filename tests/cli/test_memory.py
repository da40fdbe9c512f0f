"""`relay memory`: the memory store from the command line."""

from __future__ import annotations

import json

import pytest

from support import Relay

AGENT = {"RELAY_NAME": "Alice", "RELAY_TEAM": "default"}


def saved(relay: Relay, *arguments: str, env: dict[str, str] | None = None) -> dict[str, object]:
    memory: dict[str, object] = json.loads(relay("memory", "save", "--json", *arguments, env=env).stdout)
    return memory


def test_a_memory_is_saved_found_listed_and_forgotten(relay: Relay) -> None:
    """R48."""
    assert relay("memory", "list").stdout.startswith("There are no memories yet")
    output = relay("memory", "save", "User", "prefers", "dark", "mode").stdout
    id = output.removeprefix("Saved as ").removesuffix(".\n")
    found = relay("memory", "search", "preference").stdout
    assert found.startswith(id)
    assert found.endswith("\n    User prefers dark mode\n")
    assert relay("memory", "list").stdout == found.replace("\n    ", "  ")
    assert relay("memory", "forget", id).stdout == "Forgotten.\n"
    assert relay("memory", "search", "preference").stdout == "No memory contains any of these words.\n"


def test_the_json_shape_is_stable(relay: Relay) -> None:
    memory = saved(relay, "--shared", "deploys need two reviews")
    assert set(memory) == {"id", "text", "agent", "team", "shared", "time", "metadata"}
    assert (memory["agent"], memory["team"], memory["shared"]) == ("you", "default", True)
    assert json.loads(relay("memory", "search", "--json", "review").stdout) == [memory]
    assert json.loads(relay("memory", "list", "--json").stdout) == [memory]
    assert json.loads(relay("memory", "forget", "--json", str(memory["id"])).stdout) == {"forgotten": True}
    assert json.loads(relay("memory", "list", "--json").stdout) == []


def test_an_agent_acts_as_itself_and_shares_with_its_team(relay: Relay) -> None:
    """R48, R63: memories are per agent, and shared with the team on request."""
    own = saved(relay, "the mat", env=AGENT)
    common = saved(relay, "--shared", "the vault", env=AGENT)
    assert own["agent"] == common["agent"] == "Alice"
    assert json.loads(relay("memory", "list", "--json").stdout) == [common]
    assert json.loads(relay("memory", "list", "--json", "--name", "alice").stdout) == [common, own]
    assert json.loads(relay("memory", "list", "--json", "--team", "other").stdout) == []
    assert json.loads(relay("memory", "list", "--json", "--limit", "1", env=AGENT).stdout) == [common]


@pytest.mark.parametrize("option", [("--name", "Bob"), ("--team", "other")])
def test_an_agent_cannot_act_as_another(relay: Relay, option: tuple[str, str]) -> None:
    refused = relay("memory", "list", *option, env=AGENT, check=False)
    assert refused.returncode == 1
    assert "runs inside the agent Alice" in refused.stderr


def test_text_from_standard_input_is_saved_whole(relay: Relay) -> None:
    text = "first\nsecond – \N{PARTY POPPER}"
    memory = json.loads(relay("memory", "save", "--json", "-", input=f"\n{text}\n").stdout)
    assert memory["text"] == text
    assert relay("memory", "search", "second").stdout.endswith(
        f"\n    {text.replace(chr(10), chr(10) + '    ')}\n"
    )
    assert "first second" in relay("memory", "list").stdout


def test_control_characters_in_a_memory_do_not_reach_the_terminal(relay: Relay) -> None:
    relay("memory", "save", "-", input="red \x1b[31m alert \u202e")
    for command in (("search", "alert"), ("list",)):
        shown = relay("memory", *command).stdout
        assert "\x1b" not in shown and "\u202e" not in shown
        assert "␛[31m" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("forget", "zzzz"), 1, "there is no memory 'zzzz'. `relay memory list` shows the ids."),
        (("save", ""), 1, "the text is empty"),
        (("save", "x" * 65_537), 1, "at most 65,536"),
        (("list", "--name", "no/good"), 2, "not a valid name"),
        (("list", "--limit", "many"), 2, "invalid positive value"),
        (("list", "--limit", "0"), 2, "invalid positive value"),
        (("list", "--limit", "1" + "0" * 26), 2, "invalid positive value"),
        (("search", "--limit", "9223372036854775808", "x"), 2, "invalid positive value"),
        ((), 2, "ACTION"),
    ],
)
def test_an_error_is_reported_with_advice(
    relay: Relay, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = relay("memory", *arguments, check=False)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_store_is_reported_with_advice(relay: Relay) -> None:
    relay("memory", "save", "hello")
    (relay.home / "state" / "memory.db").write_bytes(b"garbage " * 100)
    result = relay("memory", "list", check=False)
    assert result.returncode == 1
    assert "is damaged" in result.stderr and "Move it away" in result.stderr
