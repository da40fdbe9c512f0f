"""The onboarding text: its content, its length, and that it contains no directive."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.directives.grammar import Grammar
from relay.features import onboarding
from relay.home import Home
from relay.injection.layout import DIRECTIVE
from relay.place import Place
from relay.readers.line import Line

PLACE = Place("terminal", 0)


@pytest.fixture
def own(tmp_path: Path) -> Home:
    return Home(str(tmp_path / "config"), str(tmp_path / "state"), str(tmp_path / "run"))


def onboarding_text(home: Home, others: list[str]) -> str:
    template, notice = onboarding.read(home)
    assert notice is None
    return onboarding.compose(template, name="Alice", team="default", others=others, prefix="@")


def test_the_onboarding_names_the_agent_and_others_and_stays_short(own: Home) -> None:
    text = onboarding_text(own, ["Bob", "Carol"])
    assert "You are Alice in the team default; with you: Bob, Carol." in text
    assert "{" not in text
    assert len(text) <= onboarding.LIMIT
    many = onboarding_text(own, [f"Agent-{number:03}" for number in range(200)])
    assert len(many) <= onboarding.LIMIT
    assert "Agent-000" in many and " more." in many
    assert "with you: nobody yet." in onboarding_text(own, [])


def test_the_onboarding_lists_the_agents_channels(own: Home) -> None:
    def text_for(*channels: str) -> str:
        template, _ = onboarding.read(own)
        others = [f"Agent-{number:03}" for number in range(200)]
        return onboarding.compose(
            template, name="Alice", team="default", others=others, channels=channels, prefix="@"
        )

    assert ". You are in #ops, #dev; you can also send to a channel.\n" in text_for("ops", "dev")
    many = text_for(*(f"channel-{number}-" + "x" * 50 for number in range(9)))
    assert " and 6 more; you" in many and len(many) <= onboarding.LIMIT
    assert "hear" not in text_for()


def test_the_onboarding_contains_no_directive_however_it_is_wrapped(
    own: Home, subtests: pytest.Subtests
) -> None:
    """An agent may repeat it, and a screen may wrap its echo."""
    grammar = Grammar(lambda namespace: True)
    added = (onboarding.SPAWNS.replace("{at}", "@"), onboarding.TOOLS)
    text = "\n".join([onboarding_text(own, ["Bob"]), *added])
    for width in range(1, 120):
        with subtests.test(width=width):
            for line in text.split("\n"):
                words: list[str] = []
                rows: list[str] = []
                for word in line.split(" "):
                    if words and len(" ".join([*words, word])) > width:
                        rows.append(" ".join(words))
                        words = []
                    words.append(word)
                rows.append(" ".join(words))
                for row in rows:
                    assert grammar.line(Line(row, 0.0, PLACE)) == []
                    assert grammar.line(Line("• " + row, 0.0, PLACE)) == []
                    if DIRECTIVE.match(row):
                        assert row.startswith(("@relay: ", "@memory: ")) or row in {"@relay:", "@memory:"}


def test_the_users_text_replaces_the_default(own: Home) -> None:
    own.config.mkdir(parents=True)
    (own.config / "lesson.md").write_text("Hi {name}, {braces} stay.\n", encoding="utf-8")
    assert onboarding_text(own, []) == "Hi Alice, {braces} stay."
    (own.config / "lesson.md").write_bytes(b"\xff\xfe")
    template, notice = onboarding.read(own)
    assert "{others}" in template
    assert notice is not None and "lesson.md: cannot be read" in notice
