"""Claude Code, without relay, does with hooks what tests/rules/claude_table.py says.

tests/rules/test_rules_as_claude.py says the same of relay.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from real_agents.dialects import Call
from real_agents.model import Model, Request, Rule, Step
from real_agents.recipes import Agent, Place, prepare
from rules import claude_table as table

MCP = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answers = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "memory", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "save", "inputSchema": {"type": "object"}}]},
    }
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
"""
"""An MCP server with one tool."""

COMMANDS = {
    "safe": "echo ran-{}.",
    "wary": "touch file-{0} && echo ran-{0}.",
    "fails": "echo ran-{}.; cat /nowhere",
}
"""Calls of Bash: Claude Code asks for permission for all but the first."""


class Claude:
    """One process that is told prompts, and answers requests for permission with yes."""

    def __init__(self, agent: Agent, folder: Path, model: Model, *arguments: str) -> None:
        self.place = Place(folder / "home", folder / "work", model.port)
        start = agent.start(self.place)
        self.process = subprocess.Popen(
            [
                *(str(agent.package.command), "-p", "--verbose", "--permission-prompt-tool", "stdio"),
                *("--input-format", "stream-json", "--output-format", "stream-json"),
                *(*start.arguments, *arguments),
            ],
            env={**prepare(self.place, agent.package), **start.environment},
            cwd=self.place.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, prompt: str) -> list[dict[str, Any]]:
        """Run one turn; return the inputs of the calls for which it asked for permission."""
        self._send(type="user", message={"role": "user", "content": prompt})
        asked = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["type"] == "control_request":
                given = said["request"]["input"]
                asked.append(given)
                answer = {"behavior": "allow", "updatedInput": given}
                response = {"subtype": "success", "request_id": said["request_id"], "response": answer}
                self._send(type="control_response", response=response)
            if said["type"] == "result":
                return asked
        raise AssertionError("claude ended")

    def _send(self, **message: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps(message), file=self.process.stdin, flush=True)


@contextmanager
def claude(agent: Agent, folder: Path, model: Model, *arguments: str) -> Iterator[Claude]:
    started = Claude(agent, folder, model, *arguments)
    with started.process as process:
        try:
            yield started
        finally:
            assert process.stdin is not None
            process.stdin.close()


def command(text: str, **fields: object) -> dict[str, object]:
    return {"type": "command", "command": text, **fields}


ONE_EACH = tuple({tool: name for name, (tool, _) in table.CALLS.items()}.values())
"""One call of each tool."""


@pytest.mark.agents("claude")
@pytest.mark.parametrize(
    ("rows", "chosen"),
    [([*table.MATCHERS, *table.FIELDS], ONE_EACH), (table.CONDITIONS, tuple(table.CALLS))],
    ids=["matchers", "conditions"],
)
def test_a_hook_runs_for_these_calls(
    agent: Agent,
    tmp_path: Path,
    subtests: pytest.Subtests,
    rows: Sequence[table.Row],
    chosen: Sequence[str],
) -> None:
    """Each hook notes the ids of the calls it runs for; one more refuses all of them."""
    ran, calls = tmp_path / "ran", tmp_path / "calls"
    ran.touch()
    note = f'read -r call; call=${{call#*toolu_}}; echo "@ ${{call%%[!0-9]*}}" >> {ran}'
    groups: list[object] = [{"hooks": [command(f"cat >> {calls}; exit 2")]}]
    for number, row in enumerate(rows):
        fields = {key: value for key, value in row.hook.items() if key != "matcher"}
        matcher = {"matcher": row.hook["matcher"]} if "matcher" in row.hook else {}
        groups.append({**matcher, "hooks": [command(note.replace("@", str(number)), **fields)]})
    server = tmp_path / "server.py"
    server.write_text(MCP)
    settings = {
        "mcpServers": {"memory": {"command": sys.executable, "args": [str(server)]}},
        "hooks": {table.PRE: groups},
    }
    places = {table.WORK: str(tmp_path / "work"), table.HOME: str(tmp_path / "home")}
    given = [(table.OLD_NAMES.get(tool, tool), data) for tool, data in map(table.CALLS.__getitem__, chosen)]
    step = Step(calls=tuple(Call(tool, placed(data, places)) for tool, data in given))
    with (
        Model(Rule("^begin", step)) as model,
        claude(
            agent,
            tmp_path,
            model,
            *("--mcp-config", json.dumps({"mcpServers": settings.pop("mcpServers")})),
            *("--settings", json.dumps(settings)),
        ) as started,
    ):
        started.say("begin")
    ids = {}
    for line in calls.read_text().splitlines():
        seen = json.loads(line)
        (name,) = [
            name
            for name, (tool, data) in table.CALLS.items()
            if tool == seen["tool_name"] and same(placed(data, places), seen["tool_input"])
        ]
        ids[seen["tool_use_id"].removeprefix("toolu_")] = name
    assert set(ids.values()) == set(chosen)
    found: dict[int, set[str]] = {number: set() for number in range(len(rows))}
    for line in ran.read_text().splitlines():
        number, _, key = line.partition(" ")
        found[int(number)].add(ids[key])
    for number, row in enumerate(rows):
        with subtests.test(json.dumps(row.hook)):
            names = (
                found[number] if row in table.CONDITIONS else {table.CALLS[name][0] for name in found[number]}
            )
            assert names == set(row.runs.split())


def placed(data: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(data)
    for name, place in places.items():
        text = text.replace(name, place)
    found: dict[str, Any] = json.loads(text)
    return found


def same(given: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    return all(seen.get(key) == value for key, value in given.items())


DISPATCH = """read -r payload
case $1 in
UserPromptSubmit|Stop) row=$(cat {folder}/row) ;;
*) row=${{payload#*ran-}}; row=${{row%%.*}} ;;
esac
[ -e {folder}/$row.$1.$2 ] && . {folder}/$row.$1.$2
exit 0
"""
"""The command of every hook: it runs the row's own command, if the row has one for this event."""


@pytest.mark.agents("claude")
def test_an_answer_has_this_effect(agent: Agent, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Rows about one call share a turn; the model makes all their calls at once."""
    rules, shared = [], []
    for number, answer in enumerate(table.ANSWERS):
        for place, text in enumerate(answer.commands):
            script = re.sub("-@", f"-{number}.", text)
            hook = "late" if answer.timeout else place
            (tmp_path / f"{number}.{answer.event}.{hook}").write_text(script)
        call = Call("Bash", {"command": COMMANDS[answer.call].format(number), "description": "x"})
        calls = () if answer.event == table.STOP else (Step(calls=(call,)),)
        rules.append(Rule(rf"row {number} begins", *calls))
        if not answer.alone:
            shared.append(call)
    rules.append(Rule("the others begin", Step(calls=tuple(shared))))
    dispatch = tmp_path / "dispatch.sh"
    dispatch.write_text(DISPATCH.format(folder=tmp_path))
    hooks = {
        event: [{"hooks": [command(f"sh {dispatch} {event} {place}") for place in range(2)]}]
        for event in (table.PRE, table.POST, table.FAILED, table.PROMPT, table.STOP)
    }
    hooks[table.PRE][0]["hooks"].append(command(f"sh {dispatch} {table.PRE} late", timeout=table.TIMEOUT))
    found: dict[int, set[str]] = {}
    row = tmp_path / "row"
    row.write_text("none")
    with (
        Model(*rules) as model,
        claude(agent, tmp_path, model, "--settings", json.dumps({"hooks": hooks})) as started,
    ):
        asked = started.say("the others begin")
        for number, answer in enumerate(table.ANSWERS):
            if not answer.alone:
                found[number] = effect(answer, number, model.requests, asked)
        for number, answer in enumerate(table.ANSWERS):
            if answer.alone:
                row.write_text(str(number))
                before = len(model.requests)
                asked = started.say(f"row {number} begins")
                ended = len(model.requests) - before == (answer.event != table.PROMPT)
                row.write_text("none")
                if answer.event in (table.PRE, table.POST, table.FAILED):
                    started.say("what is left")  # what an ended turn leaves behind comes with the next one
                found[number] = effect(answer, number, model.requests[before:], asked)
                if ended:
                    found[number] = found[number] - {"why"} | {"end"}
    for number, answer in enumerate(table.ANSWERS):
        with subtests.test(f"{number} {answer.event} {answer.commands}"):
            assert found[number] == set(answer.effect.split())


def effect(
    answer: table.Answer, number: int, requests: Sequence[Request], asked: Sequence[Mapping[str, Any]]
) -> set[str]:
    texts = [entry.text for each in requests for entry in each.turn.entries if entry.role != "assistant"]
    received = {word for word in table.WORDS if any(f"{word}-{number}." in text for text in texts)}
    if answer.event == table.STOP:
        return received
    if answer.event == table.PROMPT and requests:
        received.add("ran")
    if any(re.search(rf"-{number}\.", each["command"]) for each in asked):
        received.add("ask")
    # A call that asks by itself says nothing of the hook.
    return received - {"ask"} if answer.call == "fails" else received


@pytest.mark.agents("claude")
def test_a_files_hook_runs(agent: Agent, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Each process reads three files: the user's settings, the project's, and the user's for the project."""
    ran = tmp_path / "ran"
    ran.touch()
    with Model(Rule("^begin", Step(calls=(Call("Bash", {"command": "true", "description": "x"}),)))) as model:
        for number in range(0, len(table.FILES), 3):
            folder = tmp_path / str(number)
            places = (
                "home/.claude/settings.json",
                "work/.claude/settings.json",
                "work/.claude/settings.local.json",
            )
            for file, place in zip(table.FILES[number:], places, strict=False):
                path = folder / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.bytes(f"echo {shlex.quote(file.name)} >> {ran}"))
            with claude(agent, folder, model) as started:
                started.say("begin")
    found = ran.read_text().splitlines()
    for file in table.FILES:
        with subtests.test(file.name):
            assert (file.name in found) is file.runs
