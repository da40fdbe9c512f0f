"""door.mjs, with which relay's plug-ins in agents take texts: the outcome of each offer, whoever dies."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from agents.node import needs_node, printed
from relay.agents import kinds

DOOR = Path(kinds.__file__).with_name("door.mjs")
CLIENT = Path(__file__).with_name("door_client.mjs")

pytestmark = needs_node


def run(folder: Path, program: str) -> list[Any]:
    """Return what the JavaScript `program` prints. given: the texts that the agent behind `door` got."""
    return printed(
        f"""
import {{ Door }} from {json.dumps(DOOR.as_uri())}
import {{ Client }} from {json.dumps(CLIENT.as_uri())}
const path = {json.dumps(str(folder / "door"))}
const working = {json.dumps(str(folder / "working"))}
const door = new Door({{ socket: path, working }})
const given = []
door.agent = {{ busy: () => false, give: (text) => given.push(text) }}
const session = new Client(path)
const print = (...values) => console.log(JSON.stringify(values))
{program}
process.exit()
"""
    )


def test_an_offer_is_accepted_and_delivered_once_a_prompt_has_it(tmp_path: Path) -> None:
    assert run(
        tmp_path,
        """
print(await session.offer("a"), given)
print(door.idOf("another"), door.idOf("> [a]"))
door.end(door.idOf("another"), "delivered")
door.end("a", "delivered")
print(await session.next(), await session.offer("a"), await session.withdraw("a"), given)
""",
    ) == [["accepted", ["[a]"]], [None, "a"], ["delivered", "delivered", "delivered", ["[a]"]]]


def test_one_text_is_given_at_a_time(tmp_path: Path) -> None:
    assert run(
        tmp_path,
        """
await session.offer("a")
print(await session.offer("b"), given)
door.end("a", "delivered")
print(await session.next(), await session.offer("b"), given)
""",
    ) == [["busy", ["[a]"]], ["delivered", "accepted", ["[a]", "[b]"]]]


def test_a_busy_agent_takes_nothing_and_forgets_the_offer(tmp_path: Path) -> None:
    assert run(
        tmp_path,
        """
const agent = door.agent
door.agent = undefined
print(await session.offer("a"))
door.agent = { ...agent, busy: () => true }
print(await session.offer("a"))
door.agent = agent
print(await session.offer("a"), given)
""",
    ) == [["busy"], ["busy"], ["accepted", ["[a]"]]]


@pytest.mark.parametrize("state", ["busy", "refused"])
def test_what_the_agent_has_not_taken_can_be_offered_again(tmp_path: Path, state: str) -> None:
    program = f"""
await session.offer("a")
door.end("a", "{state}")
print(await session.next(), await session.offer("a"), given)
"""
    assert run(tmp_path, program) == [[state, "accepted", ["[a]", "[a]"]]]


def test_a_failure_to_hand_over_refuses_the_text(tmp_path: Path) -> None:
    program = """
door.agent.give = async () => { throw new Error("no") }
print(await session.offer("a"), await session.next(), await session.withdraw("a"))
"""
    assert run(tmp_path, program) == [["accepted", "refused", "withdrawn"]]


def test_a_withdrawn_text_is_never_given_even_if_it_is_offered_later(tmp_path: Path) -> None:
    """As by a session that has died, whose last words are read late."""
    program = """
print(await session.withdraw("a"))
const dead = new Client(path)
print(await dead.offer("a"), await session.withdraw("a"), given)
"""
    assert run(tmp_path, program) == [["withdrawn"], ["refused", "withdrawn", []]]


def test_a_text_that_is_withdrawn_too_late_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Who asked last learns the outcome; a text that is not taken is withdrawn."""
    assert run(
        tmp_path,
        """
const dead = new Client(path)
await dead.offer("a")
dead.close()
print(await session.withdraw("a"), await session.offer("b"))
door.end("a", "delivered")
print(await session.next(), await session.withdraw("a"))
door.end("b", "delivered")
await session.next()
await session.offer("c")
await session.withdraw("c")
door.end("c", "busy")
print(await session.next(), await session.withdraw("c"), given)
""",
    ) == [["accepted", "accepted"], ["delivered", "delivered"], ["busy", "withdrawn", ["[a]", "[b]", "[c]"]]]


def test_what_is_not_a_request_does_no_harm(tmp_path: Path) -> None:
    program = """
for (const line of ["", "null", "3", "{", '"offer"']) session.send(line)
session.peer.write('{"offer": "a", "te')
session.send('xt": "[a]"}')
while (!given.length) await session.next()
print(given)
"""
    assert run(tmp_path, program) == [[["[a]"]]]


def test_the_socket_of_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "door"))
    assert run(tmp_path, 'print(await session.offer("a"))') == [["accepted"]]


def test_without_a_socket_the_agent_continues(tmp_path: Path) -> None:
    program = 'new Door({ socket: "/nonexistent/door", working: "/nonexistent/w" }).works(true)'
    program += '; print(await session.offer("a"))'
    assert run(tmp_path, program) == [["accepted"]]


def test_a_file_says_that_the_agent_works(tmp_path: Path) -> None:
    """Not one that a killed agent has left."""
    (tmp_path / "working").touch()
    program = """
import { existsSync } from "node:fs"
print(existsSync(working))
door.works(true)
print(existsSync(working))
door.works(false)
print(existsSync(working))
"""
    assert run(tmp_path, program) == [[False], [True], [False]]
