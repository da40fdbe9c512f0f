"""pi.mjs, the extension in pi: how it reports pi's events and follows the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agents.node import needs_node, printed
from relay.agents import kinds

EXTENSION = Path(kinds.__file__).with_name("pi.mjs")
DOOR_CLIENT = Path(__file__).with_name("door_client.mjs")

pytestmark = needs_node

CLIENT = """
import json, pathlib, sys, time
event, answers, log = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
payload = json.load(sys.stdin)
with open(log, "a") as file:
    file.write(json.dumps(payload) + "\\n")
if answers.get(event) == "never":
    time.sleep(600)
if event in answers:
    print(json.dumps(answers[event]))
"""

PI = """
const handlers = {}, sent = [], notes = [], prompts = []
let idle = true
const pi = {
  on: (event, handler) => (handlers[event] = handler),
  sendMessage: (message, options) => sent.push({ ...message, ...options }),
  sendUserMessage: (content, options) => prompts.push([content, options]),
}
const entries = []
const ctx = {
  cwd: "/home/dev/project",
  hasUI: true,
  isIdle: () => idle,
  ui: { notify: (text) => notes.push(text) },
  sessionManager: {
    getSessionId: () => "S",
    getSessionFile: () => "/kept/S.jsonl",
    getEntries: () => entries,
  },
}
const fire = (event, fields = {}) => handlers[event]({ type: event, ...fields }, ctx)
const assistant = (stopReason, ...content) => ({ role: "assistant", stopReason, content })
const text = (text) => ({ type: "text", text })
const bash = (command) => ({ toolName: "bash", toolCallId: "c1", input: { command } })
const result = (fields) => ({ content: [text("out")], isError: false, ...fields })
const begin = () => extension(options)(pi)
begin()
const print = (value) => console.log(JSON.stringify(value ?? null))
"""


class ExtensionRun:
    """What a test's JavaScript printed, and what the client received."""

    def __init__(self, folder: Path, program: str, answers: dict[str, Any]) -> None:
        log, transcript = folder / "log", folder / "transcript.jsonl"
        hook = [sys.executable, "-I", "-S", "-c", CLIENT, "EVENT", json.dumps(answers), str(log)]
        door = {"socket": str(folder / "door"), "working": str(folder / "working")}
        options = {"hook": hook, "transcript": str(transcript), "timeout": 60, "door": door}
        source = f"""
import extension from {json.dumps(EXTENSION.as_uri())}
import {{ Client }} from {json.dumps(DOOR_CLIENT.as_uri())}
const options = {json.dumps(options)}
{PI}
{program}
"""
        self.printed = printed(source)
        self.received = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        lines = transcript.read_bytes().splitlines() if transcript.exists() else []
        self.said = [said for line in lines for said in kinds.find("relay").reader()(line)]

    @property
    def events(self) -> list[str]:
        return [each["hook_event_name"] for each in self.received]


def context(event: str, text: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def marked(*texts: str) -> str:
    return "\n\n".join(f"<hook_context>\n{text}\n</hook_context>" for text in texts)


def test_each_completed_text_of_the_model_is_a_transcript_line(tmp_path: Path) -> None:
    """Thinking, text cut off by Esc or an API error, and other speakers do not count."""
    played = ExtensionRun(
        tmp_path,
        """
const end = (message) => fire("message_end", { message })
end({ role: "user", content: [text("mine")] })
end({ role: "custom", customType: "relay", content: "theirs" })
end(assistant("toolUse", { type: "thinking", thinking: "Hm." }, text("One."), text(" "), text("Two.")))
end({ role: "toolResult", content: [text("out")] })
end(assistant("aborted", text("Cut")))
end(assistant("error", text("Bro")))
end(assistant("stop", text("One.")))
end({ role: "assistant", stopReason: "stop" })
""",
        {},
    )
    assert [said.text for said in played.said] == ["One.", "Two.", "One."]
    assert len({said.id for said in played.said}) == 3
    assert played.received == []


def test_a_call_is_reported_in_claudes_terms_and_follows_the_answer(tmp_path: Path) -> None:
    changed = {"permissionDecision": "allow", "updatedInput": {"file_path": "/b", "content": "c"}}
    played = ExtensionRun(
        tmp_path,
        """
const write = { toolName: "write", toolCallId: "c2", input: { path: "/a", content: "x", odd: 1 } }
print(await fire("tool_call", write))
print(write.input)
print(await fire("tool_result", result({ ...write, isError: true })))
""",
        {"PreToolUse": {"hookSpecificOutput": changed}},
    )
    assert played.printed == [None, {"path": "/b", "content": "c"}, None]
    before, after = played.received
    assert (before["tool_name"], before["tool_use_id"]) == ("Write", "c2")
    assert before["tool_input"] == {"file_path": "/a", "content": "x", "odd": 1}
    assert (after["hook_event_name"], after["error"]) == ("PostToolUseFailure", "out")
    assert after["tool_input"] == {"file_path": "/b", "content": "c"}
    assert after["duration_ms"] >= 0


def test_a_denied_call_is_blocked_with_the_reason(tmp_path: Path) -> None:
    denial = {"permissionDecision": "deny", "permissionDecisionReason": "POLICY-7"}
    program = 'print(await fire("tool_call", bash("rm")))'
    played = ExtensionRun(tmp_path, program, {"PreToolUse": {"hookSpecificOutput": denial}})
    assert played.printed == [{"block": True, "reason": "POLICY-7"}]
    assert played.received[0]["tool_name"] == "Bash"


def test_esc_stops_waiting_for_an_answer_and_blocks_the_call(tmp_path: Path) -> None:
    program = """
const stop = new AbortController()
ctx.signal = stop.signal
const { statSync } = await import("node:fs")
const written = () => statSync(options.hook.at(-1), { throwIfNoEntry: false })?.size
const asked = setInterval(() => written() && stop.abort(), 20)
print(await fire("tool_call", bash("make")))
clearInterval(asked)
print(await fire("tool_result", result({ ...bash("make"), isError: true })))
"""
    played = ExtensionRun(tmp_path, program, {"PreToolUse": "never"})
    assert played.printed == [{"block": True, "reason": "The user has interrupted it."}, None]
    assert played.events == ["PreToolUse"], "a waiting context is not added to a finished turn"


def test_a_context_comes_with_the_prompt_or_the_next_result(tmp_path: Path) -> None:
    played = ExtensionRun(
        tmp_path,
        """
await fire("session_start", { reason: "startup" })
await fire("input", { text: "one" })
print(await fire("before_agent_start"))
print(await fire("before_agent_start"))
await fire("input", { text: "two, in the midst of the turn" })
print(await fire("tool_result", result(bash("make"))))
await fire("agent_end", { messages: [assistant("stop", text("Done."))] })
print(sent)
""",
        {
            "SessionStart": context("SessionStart", "lesson"),
            "UserPromptSubmit": context("UserPromptSubmit", "prompt"),
            "PostToolUse": context("PostToolUse", "found"),
        },
    )
    first, again, after, sent = played.printed
    message = {"customType": "relay", "content": marked("lesson", "prompt"), "display": True}
    assert (first, again, sent) == ({"message": message}, None, [])
    added = {"type": "text", "text": marked("prompt", "found")}
    assert after == {"content": [{"type": "text", "text": "out"}, added]}
    assert [each.get("prompt") for each in played.received[1:3]] == ["one", "two, in the midst of the turn"]


def test_a_context_not_delivered_in_its_turn_continues_the_agent(tmp_path: Path) -> None:
    played = ExtensionRun(
        tmp_path,
        """
await fire("input", { text: "in the midst of a turn that calls no tool" })
await fire("agent_end", { messages: [assistant("aborted", text("Cut"))] })
print(sent)
await fire("agent_end", { messages: [assistant("stop", text("One."), text("Done."))] })
print(sent)
""",
        {
            "UserPromptSubmit": context("UserPromptSubmit", "news"),
            "Stop": {"decision": "block", "reason": "Go on."},
        },
    )
    (none, sent) = played.printed
    assert none == []
    assert [each["content"] for each in sent] == [marked("news") + "\n\nGo on."]
    assert (sent[0]["triggerTurn"], sent[0]["deliverAs"]) == (True, "followUp")
    assert played.events == ["UserPromptSubmit", "Stop"]
    assert played.received[-1]["last_assistant_message"] == "Done."


def test_a_blocked_prompt_is_dropped_and_the_user_sees_the_reason(tmp_path: Path) -> None:
    program = 'print(await fire("input", { text: "forbidden" })); print(notes)'
    played = ExtensionRun(
        tmp_path, program, {"UserPromptSubmit": {"decision": "block", "reason": "POLICY-7"}}
    )
    assert played.printed == [{"action": "handled"}, ["POLICY-7"]]


def test_each_conversation_is_reported_and_gets_only_its_own_context(tmp_path: Path) -> None:
    """Other waiting contexts survive the conversation and /reload."""
    played = ExtensionRun(
        tmp_path,
        """
await fire("session_start", { reason: "startup" })
await fire("input", { text: "in the midst" })
for (const reason of ["new", "resume", "fork", "reload"]) {
  await fire("session_shutdown", { reason })
  begin()
  await fire("session_start", { reason })
}
print(await fire("before_agent_start"))
entries.push({ type: "message" })
begin()
await fire("session_start", { reason: "startup" })
await fire("session_shutdown", { reason: "quit" })
""",
        {
            "SessionStart": context("SessionStart", "lesson"),
            "UserPromptSubmit": context("UserPromptSubmit", "news"),
        },
    )
    assert played.printed[0]["message"]["content"] == marked("lesson", "news")
    received = [each.get("source", each.get("reason")) for each in played.received]
    conversations = ["new", "clear", "resume", "resume", "fork", "resume"]
    assert received == ["startup", None, *conversations, "resume", "quit"]
    assert {each["session_file"] for each in played.received} == {"/kept/S.jsonl"}


def test_a_compaction_is_reported_can_be_refused_and_is_followed_by_the_context(tmp_path: Path) -> None:
    program = """
print(await fire("session_before_compact", {}))
print(await fire("session_before_compact", { reason: "threshold" }))
await fire("session_compact")
print(await fire("tool_result", result(bash("make"))))
"""
    refusal = {"decision": "block", "reason": "not now"}
    answers = {"PreCompact": refusal, "SessionStart": context("SessionStart", "lesson")}
    played = ExtensionRun(tmp_path, program, answers)
    assert played.printed[:2] == [{"cancel": True}] * 2
    assert played.printed[2]["content"][1]["text"] == marked("lesson")
    assert [each.get("trigger", each.get("source")) for each in played.received[:3]] == [
        "manual",
        "auto",
        "compact",
    ]


def test_a_missing_client_has_no_effect(tmp_path: Path) -> None:
    program = """
options.hook = ["/nonexistent/program"]
begin()
await fire("session_start", { reason: "startup" })
print(await fire("input", { text: "one" }))
print(await fire("tool_call", bash("make")))
print(await fire("tool_result", result(bash("make"))))
await fire("agent_end", { messages: [] })
print(sent)
"""
    assert ExtensionRun(tmp_path, program, {}).printed == [None, None, None, []]


DOOR = """
const user = (...content) => fire("message_end", { message: { role: "user", content } })
const input = (text, fields) => fire("input", { text, source: "extension", ...fields })
await fire("session_start", { reason: "startup" })
const session = new Client(options.door.socket)
"""
"""pi has started, and its session knocks."""


def test_a_text_from_the_session_is_a_prompt_delivered_when_pi_has_it(tmp_path: Path) -> None:
    """Its prompt hook, which precedes pi's decision to take it, proves nothing."""
    played = ExtensionRun(
        tmp_path,
        DOOR
        + """
print([await session.offer("a", "/clear it"), prompts])
await input("/clear it")
print(session.answers)
await user(text("another"))
await user(text("/clear it"))
print(await session.next())
session.close()
""",
        {},
    )
    assert played.printed == [["accepted", [["/clear it", None]]], [], "delivered"]
    assert [each.get("prompt") for each in played.received] == [None, "/clear it"]


def test_a_text_waits_while_pi_works_compacts_or_changes_its_conversation(tmp_path: Path) -> None:
    played = ExtensionRun(
        tmp_path,
        DOOR
        + """
const stop = new AbortController()
const offer = async () => print(await session.offer("a"))
idle = false
await offer()
idle = true
await fire("session_before_compact", { signal: stop.signal })
await offer()
await fire("session_compact")
await fire("session_shutdown", { reason: "new" })
await offer()
begin()
await fire("session_start", { reason: "new" })
await fire("session_before_compact", { signal: stop.signal })
stop.abort()
await offer()
session.close()
""",
        {},
    )
    assert [each for each in played.printed if each] == ["busy", "busy", "busy", "accepted"]


def test_the_session_can_see_whether_pi_works(tmp_path: Path) -> None:
    program = """
const { existsSync } = await import("node:fs")
const works = () => existsSync(options.door.working)
await fire("agent_start")
print(works())
await fire("agent_end", { messages: [assistant("aborted", text("Cut"))] })
print(works())
"""
    assert ExtensionRun(tmp_path, program, {}).printed == [True, False]


def test_a_refused_text_is_not_delivered(tmp_path: Path) -> None:
    program = """
print(await session.offer("a"))
print([await input("[a]"), await session.next()])
session.close()
"""
    refusal = {"decision": "block", "reason": "POLICY-7"}
    played = ExtensionRun(tmp_path, DOOR + program, {"UserPromptSubmit": refusal})
    assert played.printed == ["accepted", [{"action": "handled"}, "refused"]]


def test_of_two_prompts_at_once_neither_is_lost(tmp_path: Path) -> None:
    """pi drops the second, whose hook takes longer: the session's waits, and the user's joins the turn."""
    played = ExtensionRun(
        tmp_path,
        DOOR
        + """
await session.offer("a")
const slow = [input("[a]"), input("mine", { source: "interactive", images: [{ type: "image" }] })]
idle = false
print(await Promise.all(slow))
print([await session.next(), prompts.slice(1)])
print(await input("mine"))
print(await input("in the midst", { source: "interactive" }))
session.close()
""",
        {},
    )
    handled = {"action": "handled"}
    mine = [[{"type": "text", "text": "mine"}, {"type": "image"}], {"deliverAs": "steer"}]
    assert played.printed == [[handled, handled], ["busy", [mine]], None, None]
    heard = [each.get("prompt") for each in played.received[1:]]
    assert (sorted(heard[:2]), heard[2:]) == (["[a]", "mine"], ["in the midst"])  # two hooks at once
