"""examples/finish answers excuses, but not innocent sentences with the same words (R9)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from hooks.rig import Rig, texts
from relay.hooks import config_file
from relay.hooks.events import AgentEnd
from relay.hooks.registry import Registry, registering

PATH = Path(__file__).parents[2] / "examples" / "finish" / "relay.config.py"

EXCUSES = [
    "All done. The failing test is a pre-existing issue, so I left it alone.",
    "Two lint errors remain; they are out of scope and I did not fix them.",
    "That failure is unrelated to my changes, so I skipped it.",
    "I'll leave the error handling for a follow-up PR.",
    "The migration is beyond the scope of this task and was not done.",
    "I couldn't find it. I did not run the tests, but it should work now.",
    "The suite was already broken, which I left as it was.",
    "Some tests still fail, but those were failing already: pre-existing problems.",
    "The flaky test is deferred to a future PR, and is left as an exercise in a follow-up task.",
    "I have not addressed the warning; it failed before my change.",
    "The race remains to be done in a later PR.",
    "I'm not fixing the timeouts for now.",
    "This needs a separate change. It is out of scope, so I left it out.",
    "Refactoring the parser is out-of-scope, leaving it as is.",
    "I was unable to run the integration tests, so they were skipped.",
]

INNOCENT = [
    "I fixed the pre-existing issue as well; all 41 tests pass.",
    "The out-of-scope section of the README now lists three items.",
    "Is the caching layer out of scope? Please tell me before I continue.",
    "The function rejects values that are beyond the scope of the enum.",
    "I removed the comment that said `left as an exercise in a follow-up PR`.",
    'The error "unrelated to my changes, so I skipped it" came from the old agent and I answered it.',
    "The variable is out of scope there, which is why the closure failed; I moved it up and it is fixed.",
    "Everything is done: formatted, linted, tested.",
    "> The failing test is pre-existing, so I left it.\n\nThat was the old note; I replaced it.",
    "I opened the follow-up PR that you asked for.",
    "Deployed. It should work in Firefox and Safari; I tested both.",
    "```\n# out of scope, so I left it\n```\nThat is the comment I deleted.",
    "We already have the future change merged.",
    "The pre-existing tests pass, and so do the new ones.",
    "",
]


@pytest.fixture
def gate(rig: Rig) -> Rig:
    rig.registry.include(config_file.load(config_file.read(PATH), rig.registry).registry)
    return rig


@pytest.mark.parametrize("text", EXCUSES)
def test_an_excuse_makes_the_agent_continue(gate: Rig, text: str) -> None:
    """R4, R7, R9"""
    (answer,) = texts(gate.fire(AgentEnd(last_assistant_message=text))[0])
    assert answer.startswith('You ended with "') and "Do it now" in answer


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_sentence_is_accepted(gate: Rig, text: str) -> None:
    """R8, R9"""
    assert texts(gate.fire(AgentEnd(last_assistant_message=text or None))[0]) == []


def test_every_kind_of_excuse_has_a_sample() -> None:
    """R9: every pattern is used."""
    with registering(Registry()):
        module = runpy.run_path(str(PATH))
    kinds = {module["excuse_in"](text)[0] for text in EXCUSES}
    assert kinds == set(module["REASONS"])
