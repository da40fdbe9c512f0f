"""The dialog with which an agent announces its limit: one key dismisses it while supervision waits."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from relay.agents.profile import Profile, PromptKind, StateRule
from relay.features.limit_dialog import STABLE_FOR, LimitDialog
from relay.state.events import DialogDismissed, StateChanged
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.supervision.events import PhaseEntered
from relay.supervision.states import Phase
from relay.terminal.events import KeysTyped
from supervision.world import World

WAITING, CONTINUES = PhaseEntered(Phase.WAITING), PhaseEntered(Phase.UP)
RULES = (
    StateRule("limit reached", "prompting", PromptKind.OTHER, dismiss="esc"),
    StateRule("permission", "prompting", PromptKind.PERMISSION),
)


class Limited(World):
    """An agent, its screen and its terminal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.keys = b""
        self.verdict = Verdict(Readiness.READY, "")
        journal = Journal(self.home.state / "events.jsonl", "s1", "Alice")
        state = cast(AgentState, self)
        profile = Profile("claude", Path("claude.toml"), states=RULES)
        self.bus.add(LimitDialog(self.bus, journal, profile, self.terminal, state, clock=self.clock))

    def write(self, data: bytes) -> None:
        self.keys += data

    def look(self) -> str:
        return str(self.verdict.state)

    def draws(self, rule: str) -> None:
        state = Readiness.PROMPTING if rule else Readiness.READY
        self.verdict = Verdict(state, "", rule=rule)
        self.bus.publish(StateChanged("working", str(state), self.verdict))

    def pressed(self) -> bytes:
        """Return the keys typed once any dialog has been on the screen for long."""
        self.clock.passes(10 * STABLE_FOR)
        keys, self.keys = self.keys, b""
        return keys


def test_the_dialog_is_dismissed_once_each_time_it_is_drawn(tmp_path: Path) -> None:
    alice = Limited(tmp_path)
    alice.bus.publish(WAITING)
    for _ in range(2):
        alice.draws("limit reached")
        assert alice.pressed() == b"\x1b"
        assert alice.new(DialogDismissed) == [DialogDismissed()]
        assert alice.pressed() == b""
        alice.draws("")


def test_the_dialog_is_dismissed_only_while_supervision_waits(tmp_path: Path) -> None:
    alice = Limited(tmp_path)
    alice.draws("limit reached")
    assert alice.pressed() == b""
    alice.bus.publish(WAITING)  # the failure may be noticed after the dialog
    assert alice.pressed() == b"\x1b"
    alice.bus.publish(CONTINUES)
    alice.draws("limit reached")
    assert alice.pressed() == b""


def test_no_other_dialog_is_dismissed(tmp_path: Path) -> None:
    alice = Limited(tmp_path)
    alice.bus.publish(WAITING)
    alice.draws("permission")
    assert alice.pressed() == b""
    alice.draws("limit reached")
    alice.verdict = Verdict(Readiness.PROMPTING, "", rule="permission")  # it has replaced the other
    assert alice.pressed() == b""


def test_a_dialog_that_the_user_answers_is_left_alone(tmp_path: Path) -> None:
    alice = Limited(tmp_path)
    alice.bus.publish(WAITING)
    alice.draws("limit reached")
    alice.bus.publish(KeysTyped(b"\x1b[B", 0))
    assert alice.pressed() == b""
