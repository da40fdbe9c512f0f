"""The plugin in opencode, driven as by opencode 1.18.33: what it reports, and how it follows answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.node import needs_node, printed
from relay.agents import kinds

PLUGIN = Path(kinds.__file__).with_name("opencode.mjs")

pytestmark = needs_node

CLIENT = """
import json, sys
event, folder, replies = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with open(folder + "/received", "a") as log:
    log.write(sys.stdin.read() + "\\n")
if event in replies:
    print(json.dumps(replies[event]))
"""

HARNESS = """
const done = []  // what it asked opencode to do
const asked = (name) => async (options) => { done.push([name, options]); return {} }
const client = {
  tui: { showToast: asked("toast") },
  session: {
    get: async () => ({ data: { parentID: undefined } }),
    messages: async ({ path }) => ({ data: path.id === "ses_old" ? [{}] : [] }),
    promptAsync: asked("prompt"),
  },
  postSessionIdPermissionsPermissionId: asked("permission"),
}
const hooks = await RelayPlugin({ client, directory: "/home/dev/project" })
const event = (type, properties) => hooks.event({ event: { type, properties } })
const prompt = async (sessionID, text, agent = "build") => {
  const parts = [{ type: "text", text, id: "prt_1" }]
  await hooks["chat.message"]({ sessionID }, { message: { agent, model: "m" }, parts })
  return parts
}
const says = (sessionID, text, messageID = "msg_1") =>
  hooks["experimental.text.complete"]({ sessionID, messageID, partID: "prt_" + text }, { text })
const idle = (sessionID) => event("session.idle", { sessionID })
const tool = (state) =>
  event("message.part.updated", { part: { type: "tool", callID: "c1", sessionID: "ses_1", state } })
const asks = (tool) =>
  event("permission.asked", { id: "per_1", sessionID: "ses_1", permission: "bash", metadata: {}, tool })
const fails = async (promise) => { try { await promise; return "" } catch (error) { return error.message } }
"""

CONTEXT = {"hookSpecificOutput": {"additionalContext": "KNOW"}}


class PluginRun:
    """One run of the plugin. received: the events, in order; said: the transcript; result: the program's."""

    def __init__(self, folder: Path, program: str, replies: dict[str, Any]) -> None:
        hook = [sys.executable, "-I", "-S", "-c", CLIENT, "EVENT", str(folder), json.dumps(replies)]
        transcript = folder / "transcript.jsonl"
        options = {"hook": hook, "transcript": str(transcript), "timeout": 60, "shell": {"A": "THEIRS"}}
        source = f"""
import {{ RelayPlugin }} from {json.dumps(PLUGIN.as_uri())}
process.env.RELAY_BRIDGE = {json.dumps(json.dumps(options))}
{HARNESS}
const result = await (async () => {{ {program} }})()
await hooks.dispose()  // after everything else has been reported
console.log(JSON.stringify({{ result, done }}))
"""
        (found,) = printed(source)
        self.result = found.get("result")
        self.done = found["done"]
        self.received = [json.loads(line) for line in (folder / "received").read_text().splitlines()]
        lines = transcript.read_text().splitlines() if transcript.exists() else []
        self.said = [json.loads(line) for line in lines]

    @property
    def names(self) -> list[str]:
        return [event["hook_event_name"] for event in self.received]

    def event(self, name: str) -> Any:
        (found,) = [event for event in self.received if event["hook_event_name"] == name]
        return found


def test_a_turn_is_reported_with_its_last_text(tmp_path: Path) -> None:
    program = """
        await prompt("ses_1", "begin")
        await says("ses_1", "First.")
        await says("ses_1", "@relay:you last")
        idle("ses_1")
        idle("ses_1")  // as after an error
    """
    ran = PluginRun(tmp_path, program, {})
    assert ran.names == ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"]
    assert ran.event("SessionStart")["source"] == "startup"
    assert ran.event("UserPromptSubmit")["prompt"] == "begin"
    assert ran.event("Stop")["last_assistant_message"] == "@relay:you last"
    assert ran.event("Stop")["transcript_path"] == str(tmp_path / "transcript.jsonl")
    assert [(each["text"], each["id"], each["subagent"]) for each in ran.said] == [
        ("First.", "prt_First.", ""),
        ("@relay:you last", "prt_@relay:you last", ""),
    ]


def test_start_and_prompt_contexts_are_hidden_parts_of_the_prompt(tmp_path: Path) -> None:
    ran = PluginRun(
        tmp_path,
        'return await prompt("ses_1", "begin")',
        {"SessionStart": CONTEXT, "UserPromptSubmit": CONTEXT},
    )
    assert ran.result == [
        {"type": "text", "text": "begin", "id": "prt_1"},
        {"type": "text", "text": "KNOW\n\nKNOW", "id": "prt_1r", "synthetic": True},
    ]


def test_a_blocked_prompt_starts_no_turn(tmp_path: Path) -> None:
    program = """
        const why = await fails(prompt("ses_1", "begin"))
        idle("ses_1")
        while (done.length < 2) await new Promise((resolve) => setTimeout(resolve, 10))
        return why
    """
    ran = PluginRun(tmp_path, program, {"UserPromptSubmit": {"decision": "block", "reason": "not now"}})
    assert ran.result == "not now"
    # Again after opencode's own error, which replaces it.
    assert ran.done == [["toast", {"body": {"message": "not now", "variant": "warning"}}]] * 2
    assert "Stop" not in ran.names


CALL = """
    await prompt("ses_1", "begin")
    const args = { command: "ls", timeout: 5 }, call = { tool: "bash", sessionID: "ses_1", callID: "c1" }
    const why = await fails(hooks["tool.execute.before"](call, { args }))
"""


def test_a_tool_call_has_claude_codes_name_and_its_result_gets_the_context(tmp_path: Path) -> None:
    program = f"""{CALL}
        const output = {{ output: "a.txt" }}, content = {{ content: [] }}
        await hooks["tool.execute.after"]({{ ...call, args }}, output)
        await hooks["tool.execute.after"]({{ ...call, tool: "mcp_x", args }}, content)
        return [why, output.output, content.content]
    """
    ran = PluginRun(tmp_path, program, {"PostToolUse": CONTEXT})
    assert ran.result == ["", "a.txt\n\nKNOW", [{"type": "text", "text": "KNOW"}]]
    called = {"tool_name": "Bash", "tool_input": {"command": "ls", "timeout": 5}, "tool_use_id": "c1"}
    assert ran.event("PreToolUse").items() >= called.items()
    first, second = [event for event in ran.received if event["hook_event_name"] == "PostToolUse"]
    assert (first["tool_name"], first["tool_response"]) == ("Bash", "a.txt")
    assert second["tool_name"] == "mcp_x"


def test_a_denied_call_fails_with_the_reason(tmp_path: Path) -> None:
    deny = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "POLICY-7"}}
    program = CALL + 'tool({ status: "error", error: why }); return why'
    ran = PluginRun(tmp_path, program, {"PreToolUse": deny})
    assert ran.result == "POLICY-7"
    assert "PostToolUseFailure" not in ran.names


def test_updated_input_replaces_the_tools_own(tmp_path: Path) -> None:
    changed = {"hookSpecificOutput": {"updatedInput": {"command": "pwd"}}}
    assert PluginRun(tmp_path, f"{CALL} return args", {"PreToolUse": changed}).result == {"command": "pwd"}


def test_file_arguments_have_claude_codes_names(tmp_path: Path) -> None:
    changed = {"hookSpecificOutput": {"updatedInput": {"file_path": "/b", "old_string": "x"}}}
    program = """
        const args = { filePath: "/a", oldString: "x" }
        await hooks["tool.execute.before"]({ tool: "edit", sessionID: "ses_1", callID: "c1" }, { args })
        return args
    """
    ran = PluginRun(tmp_path, program, {"PreToolUse": changed})
    received = ran.event("PreToolUse")
    assert (received["tool_name"], received["tool_input"]) == ("Edit", {"file_path": "/a", "old_string": "x"})
    assert ran.result == {"filePath": "/b", "oldString": "x"}


def test_a_failed_call_is_reported_with_its_error(tmp_path: Path) -> None:
    program = f"""{CALL}
        tool({{ status: "running" }})
        tool({{ status: "error", error: "no such file" }})
        tool({{ status: "error", error: "no such file" }})
    """
    ran = PluginRun(tmp_path, program, {})
    assert ran.event("PostToolUseFailure")["error"] == "no such file"


@pytest.mark.parametrize(("behavior", "response"), [("allow", ["once"]), ("deny", ["reject"]), ("ask", [])])
def test_a_permission_request_gets_relays_answer(tmp_path: Path, behavior: str, response: list[str]) -> None:
    program = CALL + 'asks({ callID: "c1" })'
    reply = {"hookSpecificOutput": {"decision": {"behavior": behavior}}}
    ran = PluginRun(tmp_path, program, {"PermissionRequest": reply})
    asked = ran.event("PermissionRequest")
    assert (asked["tool_name"], asked["tool_input"]) == ("Bash", {"command": "ls", "timeout": 5})
    assert [options["body"]["response"] for name, options in ran.done if name == "permission"] == response


def test_a_turn_continues_with_a_prompt_that_is_not_the_users(tmp_path: Path) -> None:
    program = """
        await prompt("ses_1", "begin", "plan")
        await says("ses_1", "Half.")
        idle("ses_1")
        await prompt("ses_1", "The other half?", "plan")
        await says("ses_1", "All.")
    """
    ran = PluginRun(tmp_path, program, {"Stop": {"decision": "block", "reason": "The other half?"}})
    assert ran.names == ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"]
    parts = [{"type": "text", "text": "The other half?"}]
    body = {"parts": parts, "agent": "plan", "model": "m"}
    assert ran.done == [["prompt", {"path": {"id": "ses_1"}, "body": body}]]


@pytest.mark.parametrize(
    ("error", "errors"),
    [
        ({"name": "MessageAbortedError", "data": {"message": "Aborted"}}, []),
        ({"name": "APIError", "data": {"message": "no credit"}}, ["no credit"]),
        ({"name": "Strange"}, ["Strange"]),
    ],
)
def test_a_failed_turn_is_reported_and_an_interrupted_one_is_not(
    tmp_path: Path, error: dict[str, Any], errors: list[str]
) -> None:
    program = f"""
        await prompt("ses_1", "begin")
        event("session.error", {{ sessionID: "ses_1", error: {json.dumps(error)} }})
        idle("ses_1")
    """
    ran = PluginRun(tmp_path, program, {})
    assert "Stop" not in ran.names
    assert [event["error"] for event in ran.received if event["hook_event_name"] == "StopFailure"] == errors


@pytest.mark.parametrize(("id", "source"), [("ses_2", "clear"), ("ses_old", "resume")])
def test_another_session_is_reported_before_its_prompt(tmp_path: Path, id: str, source: str) -> None:
    program = f"""
        await prompt("ses_1", "begin")
        event("session.created", {{ info: {{ id: "ses_2" }} }})
        return await prompt("{id}", "hello")
    """
    ran = PluginRun(tmp_path, program, {"SessionStart": CONTEXT})
    assert ran.names == ["SessionStart", "UserPromptSubmit", "SessionStart", "UserPromptSubmit", "SessionEnd"]
    assert (ran.received[2]["session_id"], ran.received[2]["source"]) == (id, source)
    assert ran.result[1]["text"] == "KNOW"


def test_a_conversation_resumed_at_the_start_is_reported_as_resumed(tmp_path: Path) -> None:
    ran = PluginRun(tmp_path, 'await prompt("ses_old", "hello")', {})
    assert [event["source"] for event in ran.received if event["hook_event_name"] == "SessionStart"] == [
        "startup",
        "resume",
    ]


def test_a_subagent_is_reported_separately(tmp_path: Path) -> None:
    program = """
        await prompt("ses_1", "begin")
        event("session.created", { info: { id: "ses_sub", parentID: "ses_1" } })
        await prompt("ses_sub", "look around", "explore")
        await says("ses_sub", "@relay:you from below")
        await hooks["tool.execute.before"]({ tool: "bash", sessionID: "ses_sub", callID: "c1" }, { args: {} })
        idle("ses_sub")
        await says("ses_1", "Back.")
        idle("ses_1")
    """
    ran = PluginRun(tmp_path, program, {})
    assert ran.names[2:-1] == ["SubagentStart", "PreToolUse", "SubagentStop", "Stop"]
    assert {(event["agent_id"], event["agent_type"]) for event in ran.received[2:5]} == {
        ("ses_sub", "explore")
    }
    assert "agent_id" not in ran.event("Stop")
    assert [(each["text"], each["subagent"], each["agent_type"]) for each in ran.said] == [
        ("@relay:you from below", "ses_sub", "explore"),
        ("Back.", "", ""),
    ]


def test_a_compaction_summary_is_not_a_text(tmp_path: Path) -> None:
    program = """
        await prompt("ses_1", "begin")
        event("message.part.updated", { part: { type: "compaction", sessionID: "ses_1", auto: false } })
        await hooks["experimental.session.compacting"]({ sessionID: "ses_1" }, {})
        event("message.updated", { info: { id: "msg_2", role: "assistant", summary: true } })
        await says("ses_1", "@relay:you quoted", "msg_2")
    """
    ran = PluginRun(tmp_path, program, {})
    assert ran.event("PreCompact")["trigger"] == "manual"
    assert ran.said == []


def test_the_agents_shell_does_not_inherit_relays_plugin(tmp_path: Path) -> None:
    ran = PluginRun(tmp_path, 'const env = {}; await hooks["shell.env"]({}, { env }); return env', {})
    assert ran.result == {"A": "THEIRS"}
