"""opencode_tui.mjs, the door in opencode's terminal program, driven as by opencode 1.18.33."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.node import needs_node, printed
from relay.agents import kinds

PLUGIN = Path(kinds.__file__).with_name("opencode_tui.mjs")
CLIENT = Path(__file__).with_name("door_client.mjs")

pytestmark = needs_node

HARNESS = """
const handlers = {}, prompts = [], deleted = []
let meanwhile = () => {}
let error, status = "idle", messages = []
const api = {
  event: { on: (type, handler) => (handlers[type] = handler) },
  route: {
    current: { name: "home" },
    navigate: (name, params) => (api.route.current = { name, params }),
  },
  state: {
    session: { status: (id) => (id === "ses_1" ? { type: status } : undefined), messages: () => messages },
  },
  client: {
    session: {
      create: async () => (meanwhile(), { data: { id: "ses_new" } }),
      delete: async (session) => deleted.push(session),
      promptAsync: async (prompt) => (error ? { error } : (prompts.push(prompt), { data: {} })),
    },
  },
}
const fire = (type, properties) => handlers[type]({ type, properties })
const shows = (sessionID) => (api.route.current = { name: "session", params: { sessionID } })
const part = (text, type = "text") => fire("message.part.updated", { part: { type, text } })
"""


def run(folder: Path, program: str) -> list[Any]:
    """Return what the JavaScript `program` prints."""
    path = json.dumps(str(folder / "door"))
    return printed(
        f"""
import plugin from {json.dumps(PLUGIN.as_uri())}
import {{ Client }} from {json.dumps(CLIENT.as_uri())}
const print = (...values) => console.log(JSON.stringify(values))
{HARNESS}
await plugin.tui(api, {{ door: {{ socket: {path}, working: {json.dumps(str(folder / "working"))} }} }})
const session = new Client({path})
{program}
process.exit()
"""
    )


def test_a_text_goes_to_the_conversation_on_the_screen(tmp_path: Path) -> None:
    """To the user's present agent and model; it is delivered when opencode has stored it."""
    model = {"providerID": "p", "modelID": "m"}
    accepted, delivered = run(
        tmp_path,
        f"""
shows("ses_1")
messages = [{{ role: "user", agent: "plan", model: {json.dumps(model)} }}, {{ role: "assistant" }}]
print(await session.offer("a"), ...prompts)
part("[a]", "reasoning")
part("another")
part("[a]")
print(await session.next())
""",
    )
    prompt = {"agent": "plan", "model": model, "parts": [{"type": "text", "text": "[a]"}]}
    assert (accepted, delivered) == (["accepted", {"sessionID": "ses_1", **prompt}], ["delivered"])


def test_a_text_for_a_screen_without_a_conversation_begins_one_that_the_user_sees(tmp_path: Path) -> None:
    program = """
print(await session.offer("a"))
while (!prompts.length) await new Promise(setImmediate)
print(prompts[0].sessionID, api.route.current)
"""
    assert run(tmp_path, program) == [
        ["accepted"],
        ["ses_new", {"name": "session", "params": {"sessionID": "ses_new"}}],
    ]


def test_a_text_joins_the_conversation_that_the_user_begins_meanwhile(tmp_path: Path) -> None:
    program = """
meanwhile = () => shows("ses_users")
await session.offer("a")
while (!prompts.length) await new Promise(setImmediate)
print(prompts[0].sessionID, deleted)
"""
    assert run(tmp_path, program) == [["ses_users", [{"sessionID": "ses_new"}]]]


def test_a_text_waits_while_opencode_works_or_shows_something_else(tmp_path: Path) -> None:
    program = """
shows("ses_1")
status = "busy"
print(await session.offer("a"))
status = "idle"
api.route.current = { name: "a plugin's" }
print(await session.offer("a"), prompts)
"""
    assert run(tmp_path, program) == [["busy"], ["busy", []]]


def test_a_text_that_opencode_refuses_is_not_delivered(tmp_path: Path) -> None:
    """At once, or as its prompt hook does."""
    program = """
shows("ses_1")
error = { name: "BadRequest" }
print(await session.offer("a"), await session.next())
error = undefined
print(await session.offer("a"))
fire("session.error", { sessionID: "ses_2" })
fire("session.error", { sessionID: "ses_1" })
print(await session.next())
"""
    assert run(tmp_path, program) == [["accepted", "refused"], ["accepted"], ["refused"]]


def test_the_session_can_see_whether_opencode_works(tmp_path: Path) -> None:
    """In any of its conversations."""
    program = """
import { existsSync } from "node:fs"
const works = () => existsSync(OPTIONS.working)
const is = (sessionID, type) => fire("session.status", { sessionID, status: { type } })
is("ses_1", "busy")
is("ses_2", "retry")
is("ses_1", "idle")
print(works())
is("ses_2", "idle")
print(works())
""".replace("OPTIONS.working", json.dumps(str(tmp_path / "working")))
    assert run(tmp_path, program) == [[True], [False]]
