"""The rules of an event run together: order, guards, changed input, time limits, background rules."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from written import event, rule

from relay.eventbus import EventBus, handles
from relay.hooks.result import decide, injected
from relay.rules.aggregate import Fired
from relay.rules.answer import RuleRun
from relay.rules.engine import AT_ONCE, WAITING, Engine
from relay.rules.event import EVENTS, RuleEvent
from relay.rules.events import RuleEnded
from relay.rules.rule import Rule
from support import eventually, many

SHAPES = ("flat", "group")


def engine(directory: Path, **more: Any) -> Engine:
    return Engine(directory, dict(os.environ), **more)


def fire(directory: Path, rules: Sequence[Rule], what: RuleEvent, **more: Any) -> Fired:
    """Return the result for an agent in `directory`."""
    what = replace(what, data={**what.data, "cwd": str(directory)})
    return asyncio.run(engine(directory, **more).run(rules, what))


def says(**fields: Any) -> str:
    """Return a command that prints this answer to a tool call."""
    answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}
    return f"cat <<'END'\n{json.dumps(answer)}\nEND\n"


def call(command: str, tool: str = "Bash") -> RuleEvent:
    return event("PreToolUse", tool_name=tool, tool_input={"command": command})


def guard(word: str) -> str:
    """Return a command that denies tool calls whose payload contains `word`."""
    return f"if grep -q -- {word}; then echo no {word} >&2; exit 2; fi"


def changes(to: str) -> Rule:
    return rule("PreToolUse", says(updatedInput={"command": to}), name=f"to {to}")


# The input of a rule.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("command", "action"), [("rm -r /", "deny"), ("ls", "continue")])
def test_a_rule_decides_alike_in_both_formats(tmp_path: Path, shape: str, command: str, action: str) -> None:
    """R15, R18: each rule reads the payload in its own format."""
    (tmp_path / "guard.py").write_text(
        "import json, sys\n"
        "value = json.load(sys.stdin)\n"
        f"value = value['data'] if {shape == 'flat'} else value\n"
        "if 'rm' in value['tool_input']['command']: sys.exit(print('no rm', file=sys.stderr) or 2)\n"
    )
    rules = [rule("PreToolUse", "python3 -I -S guard.py", shape=shape, name="guard")]
    assert decide(fire(tmp_path, rules, call(command)).results).action == action


def test_a_command_runs_in_the_agents_directory_and_knows_its_project(tmp_path: Path) -> None:
    """R15: if the agent's directory is gone, it runs in the project."""
    (tmp_path / "sub").mkdir()
    where = rule("SessionStart", 'pwd; echo "$CLAUDE_PROJECT_DIR"')
    run = engine(tmp_path).run
    for cwd, at in ((tmp_path / "sub", tmp_path / "sub"), (tmp_path / "gone", tmp_path)):
        fired = asyncio.run(run([where], event("SessionStart", cwd=str(cwd))))
        assert injected(fired.results) == [f"{at}\n{tmp_path}"]


def test_a_prompt_needs_no_process(tmp_path: Path) -> None:
    """R16: a prompt's text is injected even where no process can start."""
    prompt = rule("UserPromptSubmit", "", kind="prompt", prompt="Answer in markdown.")
    fired = asyncio.run(Engine(tmp_path / "gone", {}).run([prompt], event("UserPromptSubmit", prompt="hi")))
    assert injected(fired.results) == ["Answer in markdown."]


def test_no_rules_give_an_empty_result(tmp_path: Path) -> None:
    """R30."""
    fired = fire(tmp_path, [], call("ls"))
    assert (fired.matched_rule_count, fired.results) == (0, [])


# Several rules.


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_contexts_keep_firing_order(tmp_path: Path, name: str) -> None:
    """R25: the order does not depend on which rule answers first."""
    rules = [
        rule(name, f'sleep {wait}; echo \'{{"additionalContext": "{wait}"}}\'') for wait in (0.2, 0.1, 0)
    ]
    fired = fire(tmp_path, rules, event(name))
    assert [each.content for ran in fired.ran for each in ran.attachments] == ["0.2", "0.1", "0"]


def test_deciders_run_one_after_another(tmp_path: Path) -> None:
    """R15: no two run at the same time."""
    lock = "mkdir lock || exit 2; sleep 0.05; rmdir lock"
    fired = fire(tmp_path, [rule("PreToolUse", lock) for _ in range(4)], call("ls"))
    assert [ran.exit_code for ran in fired.ran] == [0] * 4


def test_observers_run_concurrently(tmp_path: Path) -> None:
    """R34: each observer ends once the other exists."""
    both = "touch {0}; until [ -e {1} ]; do sleep 0.01; done"
    rules = [rule("PreCompact", both.format(*pair)) for pair in (("a", "b"), ("b", "a"))]
    assert [ran.exit_code for ran in fire(tmp_path, rules, event("PreCompact")).ran] == [0, 0]


def test_observers_are_bounded(tmp_path: Path) -> None:
    """R34: at most AT_ONCE run at the same time."""
    count = "touch slot-$$; ls | grep -c slot-; sleep 0.05; rm slot-$$"
    fired = fire(tmp_path, [rule("SessionEnd", count) for _ in range(3 * AT_ONCE)], event("SessionEnd"))
    assert 1 < max(int(ran.stdout) for ran in fired.ran) <= AT_ONCE


def test_hundreds_of_rules_run_in_order(tmp_path: Path) -> None:
    """R14: all of them run, in order."""
    count = many(1_000)
    rules = [rule("UserPromptSubmit", f"echo {number}") for number in range(count)]
    fired = fire(tmp_path, rules, event("UserPromptSubmit", prompt="hi"))
    assert injected(fired.results) == [str(number) for number in range(count)]
    assert fired.matched_rule_count == count


def test_all_reasons_are_reported(tmp_path: Path) -> None:
    """R24: a rule after one that denies is asked, too."""
    rules = [rule("PreToolUse", f"echo {name} >&2; exit 2", name=name) for name in ("a", "b")]
    assert decide(fire(tmp_path, rules, call("ls")).results).reason == "a: a\nb: b"


def test_a_failing_rule_does_not_affect_the_others(tmp_path: Path) -> None:
    """R15."""
    rules = [
        rule("PreToolUse", "/nowhere/at/all"),
        rule("PreToolUse", "x", args=()),
        rule("PreToolUse", "a\0b", args=()),
        rule("PreToolUse", "sleep 60", timeout=0.1),
        rule("PreToolUse", "echo '{'"),
        rule("PreToolUse", "echo no >&2; exit 2"),
    ]
    fired = fire(tmp_path, rules, call("ls"))
    assert [bool(ran.problem) for ran in fired.ran] == [True] * 5 + [False]
    denied = [[result.action for result in ran.results] for ran in fired.ran]
    assert denied == [["deny"]] * 3 + [[], [], ["deny"]]  # a guard that cannot run denies


def test_a_rule_with_arguments_finds_the_project(tmp_path: Path) -> None:
    """No shell reads its words, so relay puts the directory there, as Claude Code does."""
    (tmp_path / "a b.sh").write_text("#!/bin/sh\necho $1 >&2; exit 2\n")
    (tmp_path / "a b.sh").chmod(0o755)
    asked = rule("PreToolUse", "${CLAUDE_PROJECT_DIR}/a b.sh", args=("${CLAUDE_PROJECT_DIR}/x", "$HOME"))
    assert decide(fire(tmp_path, [asked], call("ls")).results).reason == f"{tmp_path}/x"


def test_a_number_beyond_json_does_not_get_around_a_guard(tmp_path: Path) -> None:
    """R15: Python reads 1e999 but cannot write it as JSON."""
    what = event("PreToolUse", tool_input=json.loads('{"command": "rm", "timeout": 1e999}'))
    fired = fire(tmp_path, [rule("PreToolUse", guard("rm"))], what)
    assert "number" in decide(fired.results).reason


@pytest.mark.parametrize("name", ["PreToolUse", "PostToolUse"])
def test_an_event_beyond_json_is_reported(tmp_path: Path, name: str) -> None:
    """R15: the agent decides a tool's input; a call that cannot be shown to a guard is denied."""
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    fired = fire(tmp_path, [rule(name)], event(name, tool_input={"a": deep}))
    assert (fired.ran[0].exit_code, "nested" in fired.ran[0].problem) == (None, True)
    assert decide(fired.results).refused == (name == "PreToolUse")


@pytest.mark.parametrize("where", ["gone", "closed", "closed/inner", "long" * 5000, "nul\0"])
def test_an_agent_cannot_escape_a_guard_by_changing_directory(tmp_path: Path, where: str) -> None:
    """R15: if no rule can run there, it runs in the project's folder."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0)
    what = event("PreToolUse", cwd=str(tmp_path / where))
    try:
        fired = asyncio.run(engine(tmp_path).run([rule("PreToolUse", "exit 2")], what))
    finally:
        inner.parent.chmod(0o700)
    assert decide(fired.results).action == "deny"


# Rules that change a tool's input.


def test_a_guard_after_a_rule_that_changes_the_input_sees_the_change(tmp_path: Path) -> None:
    """R15: rules see the input as changed by earlier ones."""
    for shape in SHAPES:
        rules = [changes("rm"), rule("PreToolUse", guard("rm"), shape=shape)]
        assert decide(fire(tmp_path, rules, call("ls")).results).action == "deny"


def test_a_guard_before_a_rule_that_changes_the_input_sees_the_change(tmp_path: Path) -> None:
    """R15: a later rule cannot get around a guard."""
    rules = [rule("PreToolUse", guard("rm")), changes("rm")]
    fired = fire(tmp_path, rules, call("ls"))
    assert decide(fired.results).action == "deny"
    assert fired.matched_rule_count == 2


def test_a_changed_call_is_no_longer_allowed(tmp_path: Path) -> None:
    """R15: a rule allows only what it has seen."""
    allows = "grep -q '\"ls\"' && " + says(permissionDecision="allow").strip()
    rules = [rule("PreToolUse", allows), changes("rm")]
    assert decide(fire(tmp_path, rules[:1], call("ls")).results).allowed
    decision = decide(fire(tmp_path, rules, call("ls")).results)
    assert (decision.allowed, decision.updated_input) == (False, {"command": "rm"})


def test_a_changed_call_stays_denied(tmp_path: Path) -> None:
    """R15."""
    rules = [rule("PreToolUse", guard("rm")), changes("ls")]
    assert decide(fire(tmp_path, rules, call("rm")).results).reason == "no rm"


def test_a_rule_that_runs_twice_adds_its_context_once(tmp_path: Path) -> None:
    """R25."""
    rules = [rule("PreToolUse", says(additionalContext="mind the gap")), changes("ls -l")]
    fired = fire(tmp_path, rules, call("ls"))
    assert injected(fired.results) == ["mind the gap"]
    assert len(fired.ran[0].attachments) == 1


def test_each_change_builds_on_the_one_before(tmp_path: Path) -> None:
    """R15: earlier rules are asked again, except those that have changed the input."""
    quotes = tmp_path / "quote.py"
    quotes.write_text(
        "import json, sys\n"
        "command = json.load(sys.stdin)['tool_input']['command']\n"
        "changed = {'command': f'{sys.argv[1]} {command}'}\n"
        "specific = {'hookEventName': 'PreToolUse', 'updatedInput': changed}\n"
        "if sys.argv[2] in command: print(json.dumps({'hookSpecificOutput': specific}))\n"
    )

    def adds(word: str, to: str) -> Rule:
        return rule("PreToolUse", f"python3 -I -S quote.py {word} {to}", shape="group")

    decision = decide(fire(tmp_path, [adds("a", "b"), adds("b", "c"), adds("c", "ls")], call("ls")).results)
    assert decision.updated_input == {"command": "a b c ls"}


def test_a_rule_that_matches_only_the_changed_input_runs(tmp_path: Path) -> None:
    """R19: matchers see the input that the tool will get."""
    first, second = changes("rm"), rule("PreToolUse", "echo no >&2; exit 2")

    def select(what: RuleEvent) -> list[Rule]:
        return [first, second] if what.data["tool_input"]["command"] == "rm" else [first]

    fired = asyncio.run(engine(tmp_path).run([first], call("ls"), select=select))
    assert decide(fired.results).action == "deny"
    assert fired.matched_rule_count == 2


# Time.


def test_the_rules_of_an_event_share_its_deadline(tmp_path: Path) -> None:
    """R13: a slow rule is ended; one that has no time left is reported, and blocks."""
    seconds = iter([0.0, 0.0, 84.9, 85.0])
    rules = [rule("PreToolUse", "true"), rule("PreToolUse", "sleep 60"), rule("PreToolUse", "exit 2")]
    fired = fire(tmp_path, rules, call("ls"), clock=lambda: next(seconds))
    assert [bool(ran.problem) for ran in fired.ran] == [False, True, True]
    assert "0.1 s" in fired.ran[1].problem
    assert "did not run" in fired.ran[2].problem
    assert decide(fired.results).action == "deny"


def test_a_slow_rule_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """R15: here, the rule waits for something that the loop does."""

    async def body() -> Fired:
        slow = rule("PreToolUse", "touch started; until [ -e go ]; do sleep 0.01; done")
        what = event("PreToolUse", cwd=str(tmp_path))
        running = asyncio.ensure_future(engine(tmp_path).run([slow], what))
        await eventually((tmp_path / "started").exists)
        (tmp_path / "go").touch()
        return await running

    assert asyncio.run(body()).ran[0].exit_code == 0


@pytest.mark.parametrize("name", ["PreToolUse", "PreCompact"])
def test_cancelling_an_event_ends_its_rules(tmp_path: Path, name: str) -> None:
    """R15."""

    async def body() -> None:
        slow = rule(name, "echo $$ > pid.new; mv pid.new pid; sleep 60")
        running = asyncio.ensure_future(engine(tmp_path).run([slow], event(name, cwd=str(tmp_path))))
        await eventually((tmp_path / "pid").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)

    asyncio.run(body())


# Background rules.


class Reports:
    """The runs reported on a bus."""

    def __init__(self) -> None:
        self.bus = EventBus()
        self.bus.add(self)
        self.runs: list[RuleRun] = []
        self.ended_once = asyncio.Event()

    @handles(RuleEnded)
    def ended(self, event: RuleEnded) -> None:
        self.runs.append(event.ran)
        self.ended_once.set()


def test_a_background_rule_delays_nothing(tmp_path: Path) -> None:
    """R15: a background rule decides nothing, and is reported once it has ended."""

    async def body() -> Fired:
        reports = Reports()
        rules = engine(tmp_path, bus=reports.bus)
        slow = rule(
            "PreToolUse", "until [ -e go ]; do sleep 0.01; done; echo no >&2; exit 2", background=True
        )
        fired = await rules.run([slow], event("PreToolUse", cwd=str(tmp_path)))
        assert not reports.runs
        (tmp_path / "go").touch()
        await reports.ended_once.wait()
        assert reports.runs[0].exit_code == 2
        await rules.close()
        return fired

    fired = asyncio.run(body())
    assert (fired.matched_rule_count, fired.results) == (1, [])


def test_the_number_of_background_rules_is_bounded(tmp_path: Path) -> None:
    """R15: a session may last for weeks."""

    async def main() -> None:
        reports = Reports()
        rules = engine(tmp_path, bus=reports.bus)
        hangs = rule("PostToolUse", "sleep 60", background=True)
        for _ in range(WAITING + 1):
            await rules.run([hangs], call("ls"))
        await rules.close()
        assert len(reports.runs) == 1 and "not started" in reports.runs[0].problem

    asyncio.run(main())


def test_closing_the_engine_ends_background_rules(tmp_path: Path) -> None:
    """R15."""

    async def body() -> None:
        rules = engine(tmp_path)
        slow = rule("SessionStart", "echo $$ > pid.new; mv pid.new pid; sleep 60", background=True)
        await rules.run([slow], event("SessionStart", cwd=str(tmp_path)))
        await eventually((tmp_path / "pid").exists)
        await rules.close()
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)

    asyncio.run(body())
