"""Runs the commands of the actions `gate` and `run`, beside the agent.

RunCommand ─→ /bin/sh ─┬→ exits with 0: EndAgent(done)
                       └→ otherwise: what it printed is typed as the next prompt
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relay.eventbus import EventBus, answers, handles
from relay.injection.events import Inject, Occupied
from relay.injection.injection import nudge
from relay.rules.command import END, CommandResult, run
from relay.state.events import PromptSubmitted
from relay.state.states import AgentState
from relay.storage.journal import Journal, preview
from relay.supervision.events import EndAgent, RunCommand
from relay.supervision.states import Phase
from relay.tasks import Tasks
from relay.terminal.events import Notify

TIME_LIMIT = 600.0
"""Seconds that a command may take: enough for a whole test suite."""


class GateRunner:
    """Runs commands in the agent's directory, with its environment."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        state: AgentState,
        *,
        directory: Path,
        env: Mapping[str, str],
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._state = state
        self._directory = directory
        self._env = env
        self._running = 0
        self._prompts = 0

    @handles(RunCommand)
    def start(self, event: RunCommand) -> None:
        if event.gates and self._running:
            return
        self._tasks.spawn(
            self._gate(event) if event.gates else self._run(event), "a command of its supervision"
        )

    @handles(PromptSubmitted)
    def submitted(self, _: PromptSubmitted) -> None:
        self._prompts += 1

    @answers(Occupied)
    async def occupied(self, _: Occupied, __: object) -> str | None:
        return "its gate is running" if self._running else None

    async def _gate(self, event: RunCommand) -> None:
        before = self._state.look(), self._prompts
        self._running += 1
        try:
            result = await self._result(event)
        finally:
            self._running -= 1
        if (self._state.look(), self._prompts) != before:
            return  # the agent has continued meanwhile: the gate did not see its latest work
        if result.exit_code == 0:
            self._bus.publish(EndAgent(Phase.DONE, "passed its gate"))
        else:
            self._bus.publish(Inject(nudge(_prompt(event.command, result), "gate")))

    async def _run(self, event: RunCommand) -> None:
        result = await self._result(event)
        if result.exit_code != 0:
            why = result.problem or f"It exited with {result.exit_code}."
            self._bus.publish(Notify(f"the supervision command {event.command!r} failed. {why}", "warning"))

    async def _result(self, event: RunCommand) -> CommandResult:
        command = f"exec 2>&1\n{event.command}"
        result = await run(command, b"", cwd=self._directory, env=self._env, timeout=TIME_LIMIT)
        self._journal.write(
            "supervision_command",
            command=event.command,
            gates=event.gates,
            exit_code=result.exit_code,
            fault=result.problem or None,
            output_preview=preview(result.stdout.decode(errors="replace")),
        )
        return result


def _prompt(command: str, result: CommandResult) -> str:
    how = result.problem or f"It exited with {result.exit_code}."
    head = f"`{command}` must succeed before your task is done, but it failed. {how}"
    output = result.end.decode(errors="ignore").strip()  # a failure shows at the end
    if not output:
        return f"{head} It printed nothing."
    cut = " (the end of it)" if len(result.stdout) > END else ""
    return f"{head} Its output{cut}:\n{output}"
