"""relay's rules run and answer as Claude Code's own hooks do (claude_table.py)."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from relay.rules.aggregate import aggregate
from relay.rules.engine import Engine
from relay.rules.event import RuleEvent
from relay.rules.rule import Rule
from relay.rules.rule_book import RuleBook
from relay.rules.rule_file import parse
from rules import claude_table as table

WORK, HOME = "/project/work", "/project/home"


def read(content: bytes) -> tuple[Rule, ...]:
    return tuple(parse(Path(WORK, "hooks.json"), content, "user")[0])


def group(event: str, *hooks: Mapping[str, Any], **more: object) -> bytes:
    return json.dumps({"hooks": {event: [{"hooks": hooks, **more}]}}).encode()


def call(name: str) -> RuleEvent:
    tool, given = table.CALLS[name]
    text = json.dumps(given).replace(table.WORK, WORK).replace(table.HOME, HOME)
    return RuleEvent(table.PRE, {"cwd": WORK, "tool_name": tool, "tool_input": json.loads(text)})


def selected(content: bytes) -> set[str]:
    """Return the calls for which the rule in `content` runs."""
    book = RuleBook(read(content))
    return {name for name in table.CALLS if book.select(call(name))}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)


def test_a_rule_runs_for_the_calls_that_claude_codes_hook_runs_for(subtests: pytest.Subtests) -> None:
    for row in (*table.MATCHERS, *table.CONDITIONS, *table.FIELDS):
        with subtests.test(json.dumps(row.hook)):
            hook = {key: value for key, value in row.hook.items() if key != "matcher"}
            matcher = {"matcher": row.hook["matcher"]} if "matcher" in row.hook else {}
            found = selected(group(table.PRE, {"type": "command", "command": "true", **hook}, **matcher))
            if row not in table.CONDITIONS:
                found = {table.CALLS[name][0] for name in found}
            assert found == set((row.runs if row.relay is None else row.relay).split())


def effect(answer: table.Answer, number: int, aggregated: Mapping[str, Any]) -> set[str]:
    """Return the effect of what relay makes of the commands' answers, in the words of the table."""
    action = aggregated.get("action")
    words = set()
    texts = [*aggregated["additional_contexts"]]
    if answer.event == table.STOP:
        texts.append(aggregated["follow_up_message"] or "")
        if not aggregated["force_continue"]:
            return {"end"}
    elif aggregated["prevent_continuation"] or (
        answer.event == table.PROMPT and aggregated["blocking_error"]
    ):
        return {"end"} | ({"ran"} if answer.event in (table.POST, table.FAILED) else set())
    elif answer.event == table.PRE:
        if action == "deny":
            texts.append(aggregated["reason"])
        else:
            words.add("new" if aggregated["updated_input"] else "ran")
        if action == "ask" or (answer.call == "wary" and action != "allow"):
            words.add("ask")
    else:
        words.add("ran")
        texts.append(aggregated["blocking_error"] or "")
    return words | {word for word in table.WORDS if f"{word}-{number}." in "\n".join(texts)}


def test_an_answer_has_the_effect_that_claude_codes_hook_has(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "work").mkdir()

    async def asked(number: int, answer: table.Answer) -> dict[str, Any]:
        commands = [re.sub("-@", f"-{number}.", command) for command in answer.commands]
        rules = read(
            group(
                answer.event,
                *({"type": "command", "command": each, "timeout": answer.timeout} for each in commands),
            )
        )
        given = (
            {"tool_name": "Bash", "tool_input": {"command": "echo"}}
            if answer.event in (table.PRE, table.POST, table.FAILED)
            else {}
        )
        event = RuleEvent(answer.event, {"cwd": str(tmp_path / "work"), **given})
        book = RuleBook(rules)
        chosen = book.select(event)
        assert len(chosen) == len(commands)
        return aggregate(await Engine(tmp_path, dict(os.environ)).run(chosen, event, select=book.select))

    async def all_of_them() -> list[dict[str, Any]]:
        return await asyncio.gather(*(asked(*each) for each in enumerate(table.ANSWERS)))

    for number, (answer, found) in enumerate(zip(table.ANSWERS, asyncio.run(all_of_them()), strict=True)):
        with subtests.test(f"{number} {answer.event} {answer.commands}"):
            expected = answer.effect if answer.relay is None else answer.relay
            assert effect(answer, number, found) == set(expected.split()), found


def test_a_files_hook_runs_if_claude_codes_does(subtests: pytest.Subtests) -> None:
    for file in table.FILES:
        with subtests.test(file.name):
            found = any(rule.command == "proof" for rule in read(file.bytes("proof")))
            assert found is (file.runs if file.relay is None else file.relay)


def test_the_table_says_why_relay_differs() -> None:
    for row in (*table.MATCHERS, *table.CONDITIONS, *table.FIELDS, *table.ANSWERS, *table.FILES):
        assert (row.relay is None) == (row.why == ""), row
