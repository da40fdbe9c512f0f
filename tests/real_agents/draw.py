"""Record the screens of agent versions other than those that the rules were written from.

    PYTHONPATH=tests python tests/real_agents/draw.py FOLDER claude 2.0.77 1.0.128

Each version runs against a scripted model in a terminal of 80 and of 120 columns. Each scene below writes
FOLDER/claude/STATE-SCENE-COLUMNS-VERSION.txt, with the state that the scene has put the agent into. A
version that draws no such screen within half a minute is reported.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from real_agents.install import PINNED
from real_agents.model import Model, Rule, Shell, Step
from real_agents.recipes import AGENTS, Agent, Place, Start, prepare
from terminal.emulator import Emulator

SIZES = ((80, 24), (120, 40))
PATIENCE = 20.0
QUIET = 0.8
"""Seconds without output after which a screen is complete."""

QUOTED = """This is what it showed me:

Do you want to proceed?
❯ 1. Yes
  2. No, and tell it why

Press Enter to confirm, Esc to cancel; esc to interrupt.

That is all."""
HOOKED = {"claude": (1, 0), "codex": (0, 125), "opencode": (1, 2)}
"""First versions in which relay's hooks, or its plugin, report the end of a turn."""


class Missing(Exception):
    """A scene that this version lacks, or that did not appear."""


@dataclass
class Stage:
    """One running agent, and the actions on it."""

    agent: Agent
    model: Model
    terminal: Emulator
    release: threading.Event

    def type(self, text: str) -> None:
        self.terminal.type(text)

    def say(self, text: str) -> None:
        self.terminal.type(text)
        self.sees(re.escape(text))
        self.rest(2.0)  # claude 1.0.128 takes an earlier Enter for part of the pasted text
        self.terminal.type("\r")

    def sees(self, pattern: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not any(re.search(pattern, row) for row in self.terminal.lines()):
            if time.monotonic() > deadline or self.terminal.ended():
                raise Missing(f"no {pattern!r}")
            self.rest(0.02)

    def rest(self, seconds: float) -> None:
        """Process the output of the next `seconds`."""
        end = time.monotonic() + seconds
        self.terminal.wait(lambda: time.monotonic() >= end)

    def settle(self, most: float = 8.0) -> None:
        """Wait until the output pauses, at most `most` seconds: some agents animate endlessly."""
        end = time.monotonic() + most
        while time.monotonic() < end:
            size = len(self.terminal.output)
            self.rest(QUIET)
            if len(self.terminal.output) == size:
                return

    def model_receives(self, text: str) -> None:
        """Wait until the model receives `text`."""
        deadline = time.monotonic() + PATIENCE
        while not self.model.count(text):
            if time.monotonic() > deadline:
                raise Missing(f"the model did not receive {text!r}")
            self.rest(0.05)

    def escape(self) -> None:
        self.type("\x1b")
        self.rest(0.7)
        if self.agent.name == "opencode":
            self.type("\x1b")


def permit(stage: Stage) -> None:
    stage.type({"claude": "1", "codex": "y"}.get(stage.agent.name, "\r"))


def start(stage: Stage) -> None:
    stage.settle()


def draft(stage: Stage) -> None:
    stage.type("half a line of mine")
    stage.sees("half a line of mine")
    stage.settle()


def delete_draft(stage: Stage) -> None:
    stage.type("\x7f" * 25)
    stage.settle()


def slash(stage: Stage) -> None:
    stage.type("/")
    stage.settle()


def delete_slash(stage: Stage) -> None:
    stage.type("\x7f")
    stage.rest(0.5)


def answered(stage: Stage) -> None:
    stage.say("hello there")
    stage.sees("I hear you")
    stage.settle()


def thinking(stage: Stage) -> None:
    stage.release.clear()
    stage.say("slow start please")
    stage.model_receives("slow start please")
    stage.rest(2.5)


def streaming(stage: Stage) -> None:
    stage.release.clear()
    stage.say("slow words please")
    stage.model_receives("slow words please")
    stage.rest(3.0)


def released(stage: Stage) -> None:
    stage.release.set()
    stage.settle()


def interrupted(stage: Stage) -> None:
    running(stage)
    stage.escape()
    stage.rest(1.0)
    stage.settle()


def quoted(stage: Stage) -> None:
    stage.say("quote it")
    stage.sees("That is all")
    stage.settle()


def permission(stage: Stage) -> None:
    if not stage.agent.permission:
        raise Missing("it asks for no permission")
    stage.say("make a file")
    stage.sees(PERMISSION)
    stage.settle(3)


def running(stage: Stage) -> None:
    if stage.agent.permission:
        stage.say("wait a while")
        stage.sees(PERMISSION)
        stage.settle(3)
        permit(stage)
    else:
        stage.say("wait a while")
        stage.sees("sleep 9")
    stage.rest(3.5)


def ran(stage: Stage) -> None:
    stage.sees("It ran")
    stage.settle()


def refused(stage: Stage) -> None:
    stage.escape()
    stage.settle()


def question(stage: Stage) -> None:
    if not stage.agent.question_call:
        raise Missing("it has no such tool")
    stage.say("ask me")
    stage.sees(r"Which colour\?")
    stage.sees("Blue")
    stage.settle(3)


def plan(stage: Stage) -> None:
    if not stage.agent.plan_call:
        raise Missing("it has no such tool")
    stage.say("plan it")
    stage.sees(r"1\. Yes")
    stage.settle(3)


def model_menu(stage: Stage) -> None:
    stage.say("/models" if stage.agent.name == "opencode" else "/model")
    stage.rest(1.0)
    stage.settle()


def shortcuts(stage: Stage) -> None:
    if stage.agent.name not in ("claude", "codex", "gemini", "qwen"):
        raise Missing("it has none")
    stage.type("?")
    stage.settle()


def failed(stage: Stage) -> None:
    stage.say("fail now")
    stage.sees("scripted error 400|400")
    stage.settle()


def retrying(stage: Stage) -> None:
    stage.say("overload now")
    stage.model_receives("overload now")
    stage.rest(3.0)


def trust(stage: Stage) -> None:
    stage.sees(r"(?i)\btrust\b", 90)
    stage.settle()


PERMISSION = (
    r"Do you want to proceed|Would you like to run|Allow command\?|Allow execution|Permission required"
    r"|Apply this change\?|Do you want to"
)
Scene = tuple[str, str, Callable[[Stage], None]]
SCENES: tuple[Scene, ...] = (
    ("ready", "start", start),
    ("working", "draft", draft),
    ("ready", "draft-deleted", delete_draft),
    ("working", "slash-menu", slash),
    ("", "", delete_slash),
    ("ready", "answered", answered),
    ("working", "thinking", thinking),
    ("", "", released),
    ("working", "streaming", streaming),
    ("", "", released),
    ("prompting-permission", "command", permission),
    ("ready", "dialog-refused", refused),
    ("working", "tool", running),
    ("ready", "after-tool", ran),
    ("prompting-question", "one", question),
    ("ready", "question-refused", refused),
    ("ready", "quoted-dialog", quoted),
    ("prompting-other", "model-menu", model_menu),
    ("ready", "menu-left", refused),
    ("ready", "interrupted", interrupted),
    ("failed", "400", failed),
    ("working", "retrying", retrying),
)
PLANNING: tuple[Scene, ...] = (
    ("ready", "plan-mode", start),
    ("prompting-plan_approval", "plan", plan),
    ("ready", "plan-refused", refused),
)
TRUST: tuple[Scene, ...] = (("prompting-other", "trust-folder", trust),)
DEPENDENT = {refused, delete_draft, delete_slash, released, ran}
"""Scenes that depend on the previous one."""


def script(release: threading.Event, agent: Agent) -> list[Rule]:
    run = "touch made.txt && echo OUT"
    held = Step("I begin, and the words come one by one.\n\nMore of them follow here.", hold=release, after=4)
    rules = [
        Rule("^hello", "I hear you.\n\n- One thing\n- Another one"),
        Rule("^slow start", Step("I have thought.", hold=release)),
        Rule("^slow words", held),
        Rule("^make a file", Step("I will.", calls=(Shell(run, escalate=True),)), "It is made."),
        Rule(
            "^wait a while",
            Step("I wait.", calls=(Shell("sleep 9; touch slow.txt", escalate=True),)),
            "It ran.",
        ),
        Rule("^quote it", QUOTED),
        Rule("^fail now", Step(status=400)),
        Rule("^overload now", *(Step(status=529) for _ in range(40))),
    ]
    if agent.question_call:
        rules.append(Rule("^ask me", Step("I ask.", calls=(agent.question_call,)), "Thanks."))
    if agent.plan_call:
        rules.append(Rule("^plan it", Step("My plan.", calls=(agent.plan_call,)), "So be it."))
    return rules


def distrust(agent: Agent, place: Place) -> bool:
    """Make the agent ask whether to trust the folder; return False for an agent that never asks."""

    def change(path: str, old: str, new: str) -> None:
        file = place.home / path
        file.write_text(file.read_text().replace(old, new))

    if agent.name == "claude":
        change(".claude.json", '"hasTrustDialogAccepted": true', '"hasTrustDialogAccepted": false')
    elif agent.name == "codex":
        change(".codex/config.toml", 'trust_level = "trusted"', "")
        change(".codex/config.toml", 'approval_policy = "on-request"\nsandbox_mode = "read-only"\n', "")
        change(".codex/config.toml", f'[projects."{place.work}"]', "")
    elif agent.name in ("gemini", "qwen"):
        change(
            f".{agent.name}/settings.json",
            '"folderTrust": {"enabled": false}',
            '"folderTrust": {"enabled": true}',
        )
    else:
        return False
    return True


class Drawing:
    """Records the screens of one version at one size."""

    def __init__(self, folder: Path, agent: Agent, columns: int, rows: int) -> None:
        self.folder = folder / agent.name
        self.agent = agent
        self.size = columns, rows
        self.folder.mkdir(parents=True, exist_ok=True)

    def draw(self, scenes: tuple[Scene, ...], arguments: tuple[str, ...] = (), trusted: bool = True) -> None:
        rest = list(scenes)
        while rest:
            rest = self._run(rest, arguments, trusted)

    def _run(self, scenes: list[Scene], arguments: tuple[str, ...], trusted: bool) -> list[Scene]:
        """Run the scenes until one fails; return those after it."""
        with ExitStack() as stack:
            release = threading.Event()
            model = stack.enter_context(Model(*script(release, self.agent)))
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            place = Place(home, home / "project", model.port)
            environment = prepare(place, self.agent.package)
            start = self.agent.start(place)
            if not trusted and not distrust(self.agent, place):
                return []
            argv = [str(self.agent.package.command), *start.arguments, *arguments]
            columns, rows = self.size
            environment = {**environment, **start.environment}
            terminal = Emulator(argv, environment, cwd=place.work, columns=columns, rows=rows)
            stack.callback(terminal.close)
            stage = Stage(self.agent, model, terminal, release)
            try:
                if trusted:
                    stage.sees(self.agent.ready, 120)
            except Missing as missing:
                self._report("start", missing, stage)
                return []
            for number, (state, what, scene) in enumerate(scenes):
                try:
                    scene(stage)
                except Missing as missing:
                    self._report(what, missing, stage)
                    rest = scenes[number + 1 :]
                    while rest and rest[0][2] in DEPENDENT:
                        rest = rest[1:]
                    return rest
                if what:
                    self._save(f"{state}-{what}", stage, home)
        return []

    def _save(self, name: str, stage: Stage, home: Path) -> None:
        screen = stage.terminal.screen
        rows = [row.replace(str(home), "~") for row in stage.terminal.lines()]
        x, y = screen.cursor
        head = [f"# title: {screen.title}", f"# cursor: {x},{y}"]
        version = tuple(int(part) for part in self.agent.package.version.split("."))
        if name in ("ready-quoted-dialog", "ready-menu-left") and version >= HOOKED.get(
            self.agent.name, (99,)
        ):
            head.append("# record: over")
        path = self.folder / f"{name}-{self.size[0]}-{self.agent.package.version}.txt"
        path.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")

    def _report(self, what: str, missing: Missing, stage: Stage) -> None:
        print(
            f"{self.agent.name} {self.agent.package.version} {self.size[0]} {what or 'between'}: {missing}",
            flush=True,
        )
        print("\n".join(f"    {row}" for row in stage.terminal.lines()[-24:]), flush=True)
        print("\n".join(stage.model.faults), flush=True)


def of_version(agent: Agent, version: str) -> Agent:
    """Return the agent at that version: old codex had no `--no-daemon` and a different prompt text."""
    package = replace(PINNED[agent.name], version=version)
    if agent.name != "codex":
        return replace(agent, package=package)

    def start(place: Place) -> Start:
        return replace(agent.start(place), arguments=())

    return replace(agent, package=package, start=start, ready="^› ")


def main(folder: Path, name: str, *versions: str) -> None:
    for version in versions:
        agent = of_version(AGENTS[name], version)
        if not agent.package.installed:
            agent.package.install()
        for columns, rows in SIZES:
            drawing = Drawing(folder, agent, columns, rows)
            drawing.draw(SCENES)
            drawing.draw(TRUST, trusted=False)
            if agent.plan_call:
                drawing.draw(PLANNING, agent.planning)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
