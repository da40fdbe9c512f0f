"""bridge.mjs, which relay's plugins in other agents use: it reports events and writes a transcript."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.node import needs_node, printed
from relay.agents import kinds
from relay.agents.transcript_lines import Said

BRIDGE = Path(kinds.__file__).with_name("bridge.mjs")

pytestmark = needs_node

CLIENT = """
import json, sys
print(json.dumps({"argv": sys.argv[1:], "payload": json.load(sys.stdin)}))
"""


def run(program: str, **options: Any) -> Any:
    """Return the JSON output of the JavaScript `program`, with a `bridge` made from `options`."""
    given = {"hook": [], "transcript": "/nowhere/t.jsonl", "timeout": 60, **options}
    found = printed(
        f"""
import {{ Bridge }} from {json.dumps(BRIDGE.as_uri())}
const bridge = new Bridge({json.dumps(given)})
const print = (value) => console.log(JSON.stringify(value))
{program}
"""
    )
    return found[0] if found else None


def test_an_event_is_passed_to_the_client_and_its_reply_is_parsed(tmp_path: Path) -> None:
    hook = [sys.executable, "-c", CLIENT, "decide", "EVENT", "/a socket", "relay"]
    received = run('print(await bridge.tell("Stop", {session_id: "1", prompt: "“ü” 🙂"}))', hook=hook)
    assert received["argv"] == ["decide", "Stop", "/a socket", "relay"]
    payload = received["payload"]
    assert payload.pop("cwd") == str(Path.cwd())
    assert payload == {
        "hook_event_name": "Stop",
        "transcript_path": "/nowhere/t.jsonl",
        "session_id": "1",
        "prompt": "“ü” 🙂",
    }


@pytest.mark.parametrize(
    "hook",
    [
        ["/nonexistent/program"],
        [],
        ["true"],
        ["echo", "no JSON"],
        ["echo", "null"],
        ["false"],
        ["sh", "-c", "exec <&-; sleep 0.1; exit 3"],
    ],
    ids=" ".join,
)
def test_a_failing_client_has_no_effect(hook: list[str]) -> None:
    program = 'print(await bridge.tell("PreToolUse", {tool_input: {text: "x".repeat(1 << 20)}}))'
    assert run(program, hook=hook) == {}


def test_a_hung_client_is_terminated() -> None:
    assert run('print(await bridge.tell("Stop", {}))', hook=["sleep", "600"], timeout=0.1) == {}


def test_an_event_that_cannot_be_serialized_is_sent_without_its_payload() -> None:
    """Without a payload, a guarded tool call is denied (relay.agents.hook_client)."""
    hook = [sys.executable, "-c", "import json, sys; print(json.dumps({'read': sys.stdin.read()}))"]
    program = 'const loop = {}; loop.loop = loop; print(await bridge.tell("PreToolUse", {tool_input: loop}))'
    assert run(program, hook=hook) == {"read": ""}


def test_each_text_is_one_line_of_the_transcript(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    program = r"""
bridge.said("1", "One\nline “ü” 🙂\u2028 \ud800")
bridge.said("2", "Sub.", { time: new Date(0), subagent: "s", agent_type: "explore" })
"""
    run(program, transcript=str(path))
    first, second = path.read_bytes().splitlines()
    (said,) = kinds.find("relay").reader()(first)
    assert (said.text, said.id) == ("One\nline “ü” 🙂\u2028 ?", "1")
    assert said.time.endswith("Z")
    assert kinds.find("relay").reader()(second) == [
        Said("Sub.", "2", "1970-01-01T00:00:00.000Z", "s", "explore")
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_unwritable_transcript_has_no_effect() -> None:
    run('bridge.said("1", "One."); print(1)')
