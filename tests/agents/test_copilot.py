"""Copilot CLI: the plug-in of a run, its events, and copilot.mjs, the extension in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agents.node import needs_node, printed
from relay.agents import kinds
from relay.agents.door import Offer, OfferState, Site, path_of
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Reply
from relay.agents.hook_setup import Prepared, prepare
from relay.agents.kinds._copilot_door import CopilotDoor
from relay.agents.profile import PromptKind
from relay.errors import ConfigError
from relay.rules.event import from_native
from relay.state.turn import Turn

COPILOT = kinds.find("copilot")
DOOR_CLIENT = Path(__file__).with_name("door_client.mjs")
OFFER = Offer("an id", "[relay m from Bob] hello [/relay m]", "[/relay m]", "Bob")

SDK = """
export async function joinSession(config) {
  const heard = {}
  return (globalThis.session = {
    config,
    heard,
    sent: [],
    sessionId: "S",
    workspacePath: "/kept/S",
    on: (type, handler) => (heard[type] = handler),
    fire: (type, data = {}, more = {}) => heard[type]({ type, data, ...more }),
    send: async (message) => `prompt ${globalThis.session.sent.push(message)}`,
    getEvents: async () => globalThis.events ?? [],
  })
}
"""
"""The parts of Copilot's module for extensions that ours uses."""


def prepared(folder: Path, *command: str, **env: str) -> Prepared:
    return prepare("copilot", command, env, str(folder / "run"), str(folder / "s.sock"))


def parsed(event: str, **payload: Any) -> NativeEvent:
    found = COPILOT.parse(event, json.dumps(payload))
    assert found is not None
    return found


def rendered(event: NativeEvent, **parts: Any) -> Any:
    return json.loads(COPILOT.render(event, Reply(**parts)))


def test_the_run_gets_a_plug_in_with_hooks_and_an_extension(tmp_path: Path) -> None:
    flag = "COPILOT_CLI_ENABLED_FEATURE_FLAGS"
    found = prepared(tmp_path, "copilot", "--model", "x", **{flag: "MINE"})
    run = tmp_path / "run"
    assert found.command == ["copilot", "--plugin-dir", str(run), "--model", "x"]
    assert found.env[flag] == "MINE,EXTENSIONS"
    plugin = json.loads((run / "plugin.json").read_text())
    hooks = json.loads((run / plugin["hooks"]).read_text())["hooks"]
    assert hooks.keys() == COPILOT.events.keys()
    assert (run / plugin["extensions"] / "relay" / "extension.mjs").exists()


@pytest.mark.parametrize("command", ["login", "mcp", "update"])
def test_a_command_that_starts_no_agent_is_left_alone(tmp_path: Path, command: str) -> None:
    found = prepared(tmp_path, "copilot", command)
    assert (found.command, found.kind) == (["copilot", command], "")


def test_a_version_without_extensions_in_plug_ins_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "package" / "copilot"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    manifest = {"name": "@github/copilot", "version": "1.0.78"}
    (program.parent / "package.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"1\.0\.102 or later"):
        prepared(tmp_path, str(program))


def test_events_are_parsed_whatever_the_case_of_their_fields() -> None:
    asked = parsed("PermissionRequest", sessionId="S", toolName="bash", toolInput={"command": "ls"})
    assert (asked.session_id, asked.tool_name, asked.tool_input) == ("S", "bash", {"command": "ls"})
    started = parsed("SessionStart", source="new")
    rules = from_native(started)
    assert started.source == "startup" and rules is not None and rules.data["source"] == "startup"
    assert parsed("PostToolUse", tool_result={"a": 1}).tool_response == {"a": 1}


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop"])
def test_a_subagents_turn_is_not_the_agents(event: str) -> None:
    assert COPILOT.parse(event, '{"agent_id": "a1", "prompt": "do it"}') is None
    assert COPILOT.parse(event, '{"prompt": "do it"}') is not None


def test_rules_read_and_change_the_path_of_a_file_by_claudes_name() -> None:
    write = parsed("PreToolUse", tool_name="Write", tool_input={"path": "/a", "file_text": "x"})
    assert write.tool_input == {"file_path": "/a", "file_text": "x"}
    assert rendered(write, input={"file_path": "/b"}) == {"modifiedArgs": {"path": "/b"}}
    grep = parsed("PreToolUse", tool_name="Grep", tool_input={"path": "/a"})
    assert grep.tool_input == {"path": "/a"}
    assert rendered(grep, input={"path": "/b"}) == {"modifiedArgs": {"path": "/b"}}


def test_replies_have_no_hook_specific_output() -> None:
    tool, prompt = parsed("PreToolUse", tool_name="Bash"), parsed("UserPromptSubmit", prompt="x")
    denied = {"permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert rendered(tool, deny="no") == denied
    assert rendered(parsed("PermissionRequest"), deny="no") == {"behavior": "deny", "message": "no"}
    assert rendered(parsed("PermissionRequest"), allow=True) == {"behavior": "allow"}
    assert rendered(prompt, deny="no") == {"decision": "block", "reason": "no"}
    assert rendered(prompt, context="know this") == {"additionalContext": "know this"}
    assert rendered(parsed("Stop"), continuation="more") == {"decision": "block", "reason": "more"}
    assert COPILOT.render(parsed("SessionEnd"), Reply(context="nothing reads it")) == ""


def test_only_a_notification_shows_that_it_asks_its_user() -> None:
    """Its permission event also precedes calls that it allows itself."""
    turn = Turn(lambda: 0.0)
    turn.take(parsed("UserPromptSubmit", prompt="x"))
    turn.take(parsed("PermissionRequest", toolName="bash"))
    found = turn.hooks.evidence()
    assert found is not None and found.state == "working"
    turn.take(parsed("Notification", notification_type="permission_prompt", message="Run: ls"))
    found = turn.hooks.evidence()
    assert found is not None and (found.state, found.kind) == ("prompting", PromptKind.PERMISSION)


def test_the_last_text_of_a_turn_is_known_though_its_stop_event_lacks_it() -> None:
    turn = Turn(lambda: 0.0)
    turn.take(parsed("UserPromptSubmit", prompt="x"))
    assert turn.last_said == ""
    turn.say("before the tool")
    turn.say("after it")
    assert turn.last_said == "after it"


def test_the_texts_of_a_subagent_are_attributed_to_it() -> None:
    lines = (Path(__file__).parent / "transcripts" / "copilot.jsonl").read_bytes().splitlines()
    read = COPILOT.reader()
    assert read is not None
    said = [each for line in lines for each in read(line) if each.subagent]
    assert [each.text for each in said] == ["Sub before tool.", "Sub final."]
    assert len({each.subagent for each in said}) == 1


def test_the_name_of_an_event_within_another_is_no_event() -> None:
    names = ["assistant.message", "session.error", "session.usage_record"]
    data = {"content": "no text", "messageId": "m", "usage": {"inputTokens": 1}, "names": names}
    line = json.dumps({"type": "tool.execution_start", "id": "e", "data": data}).encode()
    read, usage = COPILOT.reader(), COPILOT.usage(set())
    assert read is not None and usage is not None
    assert (read(line), COPILOT.failure(line), list(usage.read(line))) == ([], None, [])


# -- the door -------------------------------------------------------------------------------------------


def test_a_withdrawn_text_may_still_come_so_its_hook_has_to_stop_it(tmp_path: Path) -> None:
    """The extension that had taken it may have ended; the next one knows nothing of it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"id": "an id", "state": "withdrawn"}\n')
        writer.close()

    async def main() -> OfferState:
        site = Site({}, str(tmp_path), str(tmp_path / "s.sock"), lambda pid: True)
        async with await asyncio.start_unix_server(answer, path_of(site.socket)):
            return await CopilotDoor(site).settle(OFFER)

    assert asyncio.run(main()) is OfferState.UNKNOWN
    assert CopilotDoor.hook_stops


def test_the_record_proves_that_the_model_has_a_text(tmp_path: Path) -> None:
    door = CopilotDoor(Site({}, str(tmp_path), str(tmp_path / "s.sock"), lambda pid: True))
    told = {"type": "user.message", "data": {"content": OFFER.text}}
    assert OFFER.mark in door.told(json.dumps(told).encode())
    said = {"type": "assistant.message", "data": {"content": OFFER.text}}
    assert door.told(json.dumps(said).encode()) == ""
    assert door.told(b"no JSON [/relay m]") == ""


class ExtensionRun:
    """What a test's JavaScript printed, with the extension of a run; and the events that relay's hook got."""

    def __init__(self, folder: Path, program: str, before: str = "") -> None:
        prepared(folder, "copilot")
        run = folder / "run"
        sdk = run / "node_modules" / "@github" / "copilot-sdk"
        sdk.mkdir(parents=True)
        (sdk / "package.json").write_text('{"type": "module", "exports": {"./extension": "./extension.js"}}')
        (sdk / "extension.js").write_text(SDK)
        (run / "hook").write_text(f'echo "$*" >> "{folder}/events"; cat >> "{folder}/events"')
        self.printed = printed(f"""
import {{ existsSync }} from "node:fs"
import {{ Client }} from {json.dumps(DOOR_CLIENT.as_uri())}
const print = (value) => console.log(JSON.stringify(value ?? null))
const turns = () => new Promise(setImmediate)
{before}
await import({json.dumps((run / "extensions" / "relay" / "extension.mjs").as_uri())})
const door = new Client({json.dumps(path_of(str(folder / "s.sock")))})
const works = () => existsSync({json.dumps(str(run / "working"))})
{program}
door.close()
process.exit()
""")
        event, payload = (folder / "events").read_text().split("\n", 1)
        self.event, self.payload = event, json.loads(payload)


@needs_node
def test_the_extension_reports_the_start_and_the_record_and_asks_for_nothing(tmp_path: Path) -> None:
    found = ExtensionRun(tmp_path, "print(session.config)")
    assert found.printed == [{}]
    assert found.event == "SessionStart"
    told = {"session_id": "S", "transcript_path": "/kept/S/events.jsonl", "source": "startup"}
    assert told.items() <= found.payload.items()
    assert parsed("SessionStart", **found.payload).name is NativeName.SESSION_START


@needs_node
def test_a_conversation_with_a_prompt_is_resumed(tmp_path: Path) -> None:
    found = ExtensionRun(tmp_path, "", "globalThis.events = [{ type: 'user.message' }]")
    assert found.payload["source"] == "resume"


@needs_node
def test_a_text_has_arrived_once_it_is_a_message_of_the_user(tmp_path: Path) -> None:
    found = ExtensionRun(
        tmp_path,
        """
print(await door.offer("a", "hello"))
print(session.sent)
session.fire("user.message", { content: "hello" }, { agentId: "of a subagent" })
print(works())
session.fire("user.message", { content: "hello" })
print(await door.next())
print([works(), await door.offer("b")])
session.fire("session.idle")
print([works(), await door.offer("b")])
""",
    )
    assert found.printed == [
        "accepted",
        [{"prompt": "hello", "mode": "enqueue"}],
        False,
        "delivered",
        [True, "busy"],
        [False, "accepted"],
    ]


@needs_node
def test_a_text_that_a_hook_blocks_is_refused(tmp_path: Path) -> None:
    found = ExtensionRun(
        tmp_path,
        """
print(await door.offer("a"))
await turns()
session.fire("session.warning", { originatingMessageId: "another" })
session.fire("session.warning", { originatingMessageId: "prompt 1" })
print(await door.next())
""",
    )
    assert found.printed == ["accepted", "refused"]
