"""A kind of agent is one module and one pattern file; nothing else in relay names it."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forkserver
import relay as package
from relay.agents import kinds
from relay.agents.kind import AgentKind
from session.fake_agent import events, messages, ps
from support import PATIENCE, Relay, wait_until

PACKAGE = Path(package.__file__).parent

TINY = Path(__file__).with_name("tiny.py")

PATTERNS = """
name = "tiny"
commands = ["tiny"]
[native]
hooks = "tiny"
transcript = "tiny"
[resume]
words = ["--continue", "{id}"]
"""

CONFIG = """
from relay import on
from relay.hooks.result import HookResult

@on("tool_pre")
def guard(event):
    return HookResult("deny", reason="not that tool") if event.tool_name == "axe" else None

@on("agent_end")
def ended(event):
    print("ended", event.last_assistant_message, event.error)
"""


def test_each_module_has_a_kind_of_its_name() -> None:
    for name in kinds.names():
        kind = kinds.find(name)
        assert kind.name == name
        if kind.markers is not None:  # otherwise `without_markers` would not find them
            assert all(each.startswith(name.upper()) for each in (kind.markers.variable, *kind.markers.own))


def test_an_unknown_kind_has_neither_hooks_nor_transcripts() -> None:
    kind = kinds.find("nobody's")
    assert (type(kind), kind.events, kind.reader()) == (AgentKind, {}, None)


def named() -> Iterator[str]:
    """Yield where a module outside of relay/agents/kinds names a kind, but for examples of commands."""
    names = [name for name in kinds.names() if name != "relay"]
    word = re.compile(rf"\b({'|'.join(names)})\b")
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[:2] == ("agents", "kinds") or place.parts[0] == "cli":
            continue
        text = path.read_text(encoding="utf-8")
        if not word.search(text):
            continue
        tree = ast.parse(text)
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # a docstring
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in texts:
                example = re.search(r"run = \"|, like \"|relay\.wrap\('", node.value)  # of an error message
                if word.search(node.value) and not example:
                    yield f"{place}:{node.lineno}: {node.value!r}"


def test_no_other_module_names_a_kind() -> None:
    assert list(named()) == []


class TinyAgent:
    """The agent `tiny`, which only a copy of relay knows."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.folder = relay.home / "agent"
        installed = relay.home / "installed"
        shutil.copytree(PACKAGE, installed / "relay")
        for name in ("config", "patterns"):
            (installed / name).symlink_to(PACKAGE.parent / name)
        shutil.copy(TINY, installed / "relay" / "agents" / "kinds" / "tiny.py")
        client = installed / "relay" / "agents" / "hook_client.py"
        text = client.read_text().replace("\nTAKEN = 3.0\n", f"\nTAKEN = {PATIENCE}\n")
        assert text != client.read_text()
        client.write_text(text)  # its first hook waits for the session on a busy machine, too
        shutil.copy(Path(__file__).parent.parent / "fakes" / "agent_tiny.py", relay.home / "program.py")
        patterns = relay.home / "config" / "patterns"
        patterns.mkdir(parents=True)
        (patterns / "tiny.toml").write_text(PATTERNS)
        (relay.home / "config" / "relay.config.py").write_text(CONFIG)
        program = self.folder / "tiny"
        self.folder.mkdir()
        program.write_text(
            f"#!{sys.executable} -S\nexec(compile(open('{relay.home}/program.py').read(), 'tiny', 'exec'))\n"
        )
        program.chmod(0o755)
        self.environment = {"PYTHONPATH": str(installed), "AGENT_FOLDER": str(self.folder)}
        with forkserver.real_exec():  # its first hook comes while the session is still loading
            self("wrap", "-d", "-n", "Tina", "--", str(program))
        self.until(lambda: self.lines("replies"))

    def __call__(self, *arguments: str) -> str:
        return self.relay(*arguments, env=self.environment).stdout

    def lines(self, name: str) -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition: Any) -> Any:
        return wait_until(condition, message=lambda: self("events") + str(self.lines("replies")))

    def asks(self, prompt: str) -> None:
        """Send it a prompt, and wait until its turn is over."""
        ended = len(self.ends())
        self.relay("send", "Tina", prompt)
        self.until(lambda: len(self.ends()) > ended)

    def used(self) -> tuple[int, int]:
        (row,) = json.loads(self.relay("usage", "--json").stdout)["agents"]
        return row["tokens"]["input"], row["tokens"]["output"]

    def ends(self) -> list[str]:
        return [each["text"] for each in events(self.relay, "Tina", "handler_printed")]


def test_a_new_kind_needs_one_module_and_one_pattern_file(relay: Relay) -> None:
    """Its words, turns, tools, deliveries, usage, failures and conversations are those of any other agent."""
    tina = TinyAgent(relay)
    assert "You are Tina" in tina.lines("replies")[0]["reply"]
    assert [row["agent"] for row in ps(relay)] == ["tiny"]
    tina.asks("say Done.|@relay:you exactly this")
    assert [row["body"] for row in messages(relay, "--to", "you")] == ["exactly this"]
    tina.asks("use axe")
    tina.asks("use spoon")
    refused = [each["reply"] for each in tina.lines("replies") if each["event"] == "uses"]
    assert refused == ["refused: not that tool", ""]
    tina.asks("fail")
    assert tina.ends()[-1].strip().endswith("busy")
    tina("restart", "Tina")
    tina.until(lambda: tina.lines("arguments")[1:] == [["--continue", "first"]])
    tina.asks("say Back.")
    assert {row["state"] for row in messages(relay, "--to", "Tina")} == {"injected"}
    tina.until(lambda: tina.used() == (400, 40))
