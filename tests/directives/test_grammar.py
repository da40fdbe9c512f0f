"""The grammar: logical lines in, directives out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents import catalog
from relay.directives.directive import Directive
from relay.directives.grammar import BULLETS, DECORATION, Grammar, unescape
from relay.home import Home
from relay.hooks.registry import Registry
from relay.place import Place
from relay.readers.line import Line


def known(namespace: str) -> bool:
    return namespace in {"relay", "memory", "deploy"}


def make_line(text: str, time: float, *, gap: bool = False, code: bool = False) -> Line:
    """Return a line completed at `time`, which is also its offset in bytes."""
    return Line(text, time, Place("terminal", int(time)), gap, code)


def directive(
    namespace: str, target: str, body: str, time: float, *, at: int | None = None, unclosed: bool = False
) -> Directive:
    """Return a directive whose last line was completed at `time`, at offset `at` or `time`."""
    place = Place("terminal", int(time) if at is None else at)
    return Directive(namespace, target, body, time, place, unclosed)


def parse(text: str, *, end: bool = True, **options: str) -> list[Directive]:
    """Return the directives in `text`, whose lines are completed at 0, 1, 2, ... seconds."""
    grammar = Grammar(known, **options)
    found: list[Directive] = []
    lines = text.split("\n")
    for time, line in enumerate(lines):
        found += grammar.line(make_line(line, float(time)))
    return found + (grammar.turn_end(float(len(lines))) if end else [])


def pairs(text: str, **options: str) -> list[tuple[str, str]]:
    return [(directive.target, directive.body) for directive in parse(text, **options)]


def test_a_line_with_namespace_target_and_body_is_a_directive() -> None:
    """R46."""
    assert parse("@relay:Bob please check the tests") == [
        directive("relay", "Bob", "please check the tests", 0.0)
    ]
    assert parse("Hello.\n\n@memory:save the build is slow\nBye.")[0].namespace == "memory"


DIRECTIVES = [
    ("@RELAY:Bob hi", "Bob", "hi"),
    ("@Relay:bOB hi", "bOB", "hi"),
    ("@relay:Bob, hi", "Bob", "hi"),
    ("@relay:Bob: hi", "Bob", "hi"),
    ("@relay:Bob; hi", "Bob", "hi"),
    ("@relay:Bob. hi", "Bob", "hi"),
    ("@relay:a.b-c_d hi", "a.b-c_d", "hi"),
    ("@relay:* hi", "*", "hi"),
    ("@relay:#builds: hi", "#builds", "hi"),
    ("@relay:Bob\thi  there ", "Bob", "hi  there"),
    ("@relay:Bob", "Bob", ""),
    ("@memory:list", "list", ""),
    ("@relay:日本 こんにちは", "日本", "こんにちは"),
    ("@relay:Bob ask @relay:Carol too", "Bob", "ask @relay:Carol too"),
]


def test_namespace_and_target_are_words_and_the_rest_is_the_body(subtests: pytest.Subtests) -> None:
    for line, target, body in DIRECTIVES:
        with subtests.test(line):
            assert pairs(line) == [(target, body)]


ORDINARY = [
    "tell @relay:Bob hi",
    "see also @relay:Bob",
    '"@relay:Bob hi"',
    "'@relay:Bob hi'",
    "`@relay:Bob hi`",
    "> @relay:Bob hi",
    "  > @relay:Bob hi",
    "- > @relay:Bob hi",
    "$ @relay:Bob hi",
    "❯ @relay:Bob hi",
    ">>> @relay:Bob hi",
    "1 @relay:Bob hi",
    "▎ @relay:Bob hi",
    "me@relay:Bob hi",
    "@relay: Bob hi",
    "@relay:... hi",
    "@relay Bob hi",
    "@:Bob hi",
    "@9relay:Bob hi",
    "@-relay:Bob hi",
    "@re lay:Bob hi",
    "**@relay:Bob** hi",
    "-@relay:Bob hi",
    "@unknown:Bob hi",
    "@media:screen { }",
    "",
    "@",
]


def test_a_line_that_does_not_start_as_a_directive_is_ordinary_text(subtests: pytest.Subtests) -> None:
    for line in ORDINARY:
        with subtests.test(repr(line)):
            assert pairs(line) == []


def test_bullets_and_indentation_are_decoration(subtests: pytest.Subtests) -> None:
    for bullet in BULLETS:
        with subtests.test(bullet):
            assert pairs(f"{bullet} @relay:Bob hi") == [("Bob", "hi")]
            assert pairs(f"   {bullet}   @relay:Bob hi") == [("Bob", "hi")]
            assert pairs(f"● {bullet} @relay:Bob hi") == [("Bob", "hi")]


def test_an_agent_may_have_its_own_decoration_and_prefix() -> None:
    assert pairs("assistant> !relay:Bob hi", decoration="assistant> ", prefix="!") == [("Bob", "hi")]
    assert pairs("@relay:Bob hi\n!relay:Bob ho", prefix="!") == [("Bob", "ho")]
    assert pairs("+@relay:Bob hi", decoration=r"\+", prefix="@") == [("Bob", "hi")]


FENCES = [
    ("```\n@relay:In x\n```\n@relay:Out x", ["Out"]),
    ("```text\n@relay:In x\n```\n@relay:Out x", ["Out"]),
    ("~~~\n@relay:In x\n~~~\n@relay:Out x", ["Out"]),
    ("    ```\n    @relay:In x\n    ```\n@relay:Out x", ["Out"]),
    ("- ```\n  @relay:In x\n  ```\n@relay:Out x", ["Out"]),
    ("````\n```\n@relay:In x\n```\n````\n@relay:Out x", ["Out"]),
    ("```\n~~~\n@relay:In x\n```\n@relay:Out x", ["Out"]),
    ("~~~ ```\n@relay:In x\n~~~\n@relay:Out x", ["Out"]),
    ("```\n@relay:In x\n```text\n@relay:In x\n``` \n@relay:Out x", ["Out"]),
    ("```@relay:In x```\n@relay:Out x", ["Out"]),
    ("``\n@relay:Out x", ["Out"]),
    ("1. ```\n   @relay:In x\n   ```\n@relay:Out x", ["Out"]),
    ("- 2) ~~~\n     @relay:In x\n     ~~~\n@relay:Out x", ["Out"]),
    ("- one\n  - ```\n    @relay:In x\n    ```\n@relay:Out x", ["Out"]),
    ("```\n- ```\n@relay:In x\n```\n@relay:Out x", ["Out"]),
    ("```\n    ```\n@relay:In x\n   ```\n@relay:Out x", ["Out"]),
    ("   ```\n@relay:In x\n```\n@relay:Out x", ["Out"]),
    ("```\n@relay:In x", []),
]


def test_nothing_in_a_code_fence_is_a_directive(subtests: pytest.Subtests) -> None:
    for text, targets in FENCES:
        with subtests.test(repr(text)):
            assert [target for target, _ in pairs(text)] == targets


def test_an_unclosed_fence_ends_with_the_turn() -> None:
    grammar = Grammar(known)
    grammar.line(make_line("```", 0))
    assert grammar.line(make_line("@relay:In x", 1)) == []
    assert grammar.turn_end(2) == []
    assert [d.target for d in grammar.line(make_line("@relay:Out x", 3))] == ["Out"]


def test_many_lines_between_angle_brackets_are_one_body() -> None:
    text = "@relay:Bob <<<\nfirst\n\n  indented\nlast\n>>>\n@relay:Carol hi"
    assert parse(text) == [
        directive("relay", "Bob", "first\n\n  indented\nlast", 5.0),
        directive("relay", "Carol", "hi", 6.0),
    ]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("@relay:Bob <<<\n>>>", ""),
        ("@relay:Bob, <<<\na\n>>>", "a"),
        ("@relay:Bob <<<\n  a\n  >>>", "  a"),
        ("● @relay:Bob <<<\n  a\n    b\n  >>>", "a\n  b"),
        ("● @relay:Bob <<<\na\n    b\n>>>", "a\n    b"),
        ("@relay:Bob <<<\n>>> not alone\n>>>", ">>> not alone"),
        ("@relay:Bob <<<\n```python\n>>>\n```\nafter\n>>>", "```python\n>>>\n```\nafter"),
        ("@relay:Bob <<<\n~~~\n```\n>>>\n~~~\n>>>", "~~~\n```\n>>>\n~~~"),
        ("@relay:Bob <<<\n@relay:Carol quoted\n>>>", "@relay:Carol quoted"),
        ("@relay:Bob <<<\n\\@relay:Carol hi\n>>>", "@relay:Carol hi"),
        ("@relay:Bob <<<\n" + "\n".join(f"line {n}" for n in range(1000)) + "\n>>>", None),
    ],
)
def test_the_body_of_a_form_is_the_text_between_its_marks(text: str, body: str | None) -> None:
    [found] = parse(text, end=False)
    assert not found.unclosed
    assert found.place.offset == text.count("\n")
    if body is None:
        assert found.body.split("\n") == [f"line {n}" for n in range(1000)]
    else:
        assert found.body == body


def test_an_unclosed_form_ends_with_the_turn_and_is_marked() -> None:
    grammar = Grammar(known)
    for line in ("@relay:Bob <<<", "a", "@relay:Carol inside", ""):
        assert grammar.line(make_line(line, 1)) == []
    assert grammar.turn_end(2) == [
        directive("relay", "Bob", "a\n@relay:Carol inside\n", 2, at=1, unclosed=True)
    ]
    assert grammar.turn_end(3) == []
    assert [d.target for d in grammar.line(make_line("@relay:Dora hi", 4))] == ["Dora"]


def test_an_unclosed_fence_in_a_form_does_not_hide_its_end() -> None:
    text = "@relay:Bob <<<\n```\ncode\n>>>\nprose\n@relay:Carol hi"
    assert parse(text) == [
        directive("relay", "Bob", "```\ncode", 6.0, at=3),
        directive("relay", "Carol", "hi", 5.0),
    ]


def test_a_form_is_never_joined_across_a_gap() -> None:
    grammar = Grammar(known)
    grammar.line(make_line("@relay:Bob <<<", 0))
    grammar.line(make_line("begun", 1))
    assert grammar.line(make_line("@relay:Carol after the flood", 2, gap=True)) == [
        directive("relay", "Bob", "begun", 2, at=1, unclosed=True),
        directive("relay", "Carol", "after the flood", 2),
    ]


def test_an_endless_form_is_bounded() -> None:
    grammar = Grammar(known)
    grammar.line(make_line("@relay:Bob <<<", 0))
    found: list[Directive] = []
    while not found:
        found = grammar.line(make_line("x" * 1000, 1))
    assert found[0].unclosed
    assert len(found[0].body) < 300_000


def test_a_form_of_an_unknown_namespace_is_ordinary_text() -> None:
    assert pairs("@unknown:Bob <<<\n@relay:Carol hi\n>>>") == [("Carol", "hi")]


@pytest.mark.parametrize(
    ("line", "directives"),
    [
        (r"\@relay:Bob hi", []),
        (r"\\@relay:Bob hi", []),
        (r"- \@relay:Bob hi", []),
        (r"@relay:Bob write \@relay:Carol at the start", [("Bob", "write @relay:Carol at the start")]),
        (r"@relay:Bob write \\@relay:Carol literally", [("Bob", r"write \@relay:Carol literally")]),
    ],
)
def test_a_backslash_makes_a_directive_literal(line: str, directives: list[tuple[str, str]]) -> None:
    """R65."""
    assert pairs(line) == directives


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"\@relay:x", "@relay:x"),
        (r"\\@relay:x", r"\@relay:x"),
        (r"\\\@relay:x", r"\\@relay:x"),
        (r"a \@b and c:\@d", r"a \@b and c:\@d"),
        (r"C:\new \n", r"C:\new \n"),
        ("none", "none"),
    ],
)
def test_unescape_removes_one_backslash_before_a_directive(text: str, plain: str) -> None:
    """R65."""
    assert unescape(text) == plain
    assert unescape(text.replace("@", "!"), "!") == plain.replace("@", "!")


def test_a_long_run_of_backslashes_takes_linear_time() -> None:
    """A program may print megabytes of them: 200,000 took 20 seconds."""
    text = "\\" * 2_000_000
    assert unescape(text) == text
    assert unescape(f"{text}@relay:Bob hi") == f"{text[1:]}@relay:Bob hi"


TEXT = st.text(st.characters(exclude_characters="\n"), max_size=5)
PIECE = st.sampled_from(["@relay:Bob", "@a:b,", " hi", " ", "• ", "```", "~~~", " <<<", ">>>", "\\", "@"])


@given(st.lists(st.lists(st.one_of(TEXT, PIECE), max_size=5).map("".join), max_size=20))
def test_a_directive_has_only_the_words_of_its_lines(texts: list[str]) -> None:
    """Whatever the text, a line starts with its namespace and target, and its body ends with a line."""
    grammar = Grammar(lambda namespace: True)
    found = [one for number, text in enumerate(texts) for one in grammar.line(make_line(text, number))]
    found += grammar.turn_end(len(texts))
    for one in found:
        begins = [n for n, text in enumerate(texts) if f"@{one.namespace}:{one.target}" in lowered(text)]
        assert one.target.strip() and one.namespace.islower()
        # A form may contain a line that looks like its own start: one of them is the real start.
        assert any(
            all(any(row.strip() in text for text in words) for row in one.body.split("\n"))
            for first in begins
            if (words := [unescape(text) for text in texts[first : one.place.offset + 1]])
        )
    places = [one.place.offset for one in found]
    assert places == sorted(set(places))


def lowered(text: str) -> str:
    """Return `text` with its namespaces in lower case."""
    return re.sub(r"@[A-Za-z][\w-]*:", lambda match: match[0].lower(), text)


@given(st.lists(st.sampled_from(["```", "~~~", "@relay:A <<<", ">>>", "@relay:B hi", "text", "", "  ```py"])))
def test_after_the_end_of_a_turn_nothing_is_open(texts: list[str]) -> None:
    grammar = Grammar(known)
    for text in texts:
        grammar.line(make_line(text, 0))
    grammar.turn_end(1)
    assert grammar.line(make_line("@relay:Bob hi", 2)) == [directive("relay", "Bob", "hi", 2)]


def test_a_line_drawn_as_code_is_not_a_directive() -> None:
    grammar = Grammar({"relay"}.__contains__)
    assert grammar.line(make_line("@relay:Bob an example", 0, code=True)) == []
    assert [one.body for one in grammar.line(make_line("@relay:Bob real", 0))] == ["real"]


def test_fences_and_forms_count_even_if_drawn_as_code() -> None:
    grammar = Grammar({"relay"}.__contains__)
    lines = [
        make_line("```", 0, code=True),
        make_line("  @relay:Bob in it", 0),
        make_line("```", 0, code=True),
    ]
    lines += [make_line("@relay:Ann <<<", 0), make_line("def f():", 0, code=True), make_line(">>>", 0)]
    assert [(one.target, one.body) for line in lines for one in grammar.line(line)] == [("Ann", "def f():")]


def test_a_fence_drawn_as_code_ends_at_a_directive_that_is_neither_code_nor_indented() -> None:
    """F7: opencode draws a fence only inside another one, and may scroll past its start."""
    drawn = [
        ("     ```", True),
        ("     @relay:Bob an example", True),
        ("       @relay:Bob further in", False),
        ("     plain words", False),
        ("     @relay:Ann hello", False),
        ("     @relay:Zoe hello", False),
    ]
    grammar = Grammar({"relay"}.__contains__)
    lines = [make_line(text, 0, code=code) for text, code in drawn]
    assert [one.target for line in lines for one in grammar.line(line)] == ["Ann", "Zoe"]


def test_a_fence_drawn_as_code_ends_at_a_fence_in_its_column() -> None:
    """F7: pi draws every fence with three backticks, and its contents two columns further right."""
    drawn = [
        ("- ```md", True),
        ("    ```", False),  # of an unknown language: not coloured
        ("    @relay:Bob in the inner fence", False),
        ("    ```", False),
        ("    @relay:Bob between the fences", False),
        ("  ```", True),
        ("  @relay:Bob real", False),
        ("  ```", True),
        ("    ```", True),
        ("    @relay:Bob in tildes", True),
        ("  ```", True),
        ("  @relay:Ann real", False),
    ]
    grammar = Grammar(known)
    found = [one for text, code in drawn for one in grammar.line(make_line(text, 0, code=code))]
    assert [(one.target, one.body) for one in found] == [("Bob", "real"), ("Ann", "real")]


def test_a_form_without_a_drawn_end_ends_at_the_next_directive() -> None:
    """F6: a directive that is fenced, of another namespace or in a sentence is part of it."""
    texts = ["@relay:Bob <<<", "one", "```", "@relay:In x", "```", "@media:screen", "see @relay:Bob", ""]
    texts += ["@relay:Ann real", "prose"]
    grammar = Grammar(known)
    lines = [make_line(text, 0.0)._replace(unmarked=True) for text in texts]
    found = [(one.target, one.body, one.unclosed) for line in lines for one in grammar.line(line)]
    body = "\n".join(texts[1:7]) + "\n"
    assert found == [("Bob", body, True), ("Ann", "real", False)]


def terminal_grammar(agent: str, decoration: str | None = None) -> Grammar:
    """Return the grammar for this agent's terminal. decoration: as in a user's pattern file."""
    profile = catalog.load(agent, Home("/nowhere", "/nowhere", "/nowhere"))
    if decoration is not None:
        profile = replace(profile, decoration=re.compile(decoration))
    return Grammar.of_terminal(known, profile, prefix="@")


DIFF_LINES = [
    ("+  @deploy:prod x", "diff", "diff"),
    ("-\t@deploy:prod x", "diff", "diff"),
    ("+@deploy:prod x", "diff", "diff"),
    ("++ @deploy:prod x", "diff", "diff"),
    ("+ - @deploy:prod x", "diff", "diff"),
    ("- * @deploy:prod x", "diff", "diff"),
    (" + @deploy:prod x", "diff", "a directive"),
    ("  - @deploy:prod x", "diff", "a directive"),
    ("  @deploy:prod x", "a directive", "a directive"),
    ("* @deploy:prod x", "a directive", "a directive"),
    ("• - @deploy:prod x", "a directive", "a directive"),
    ("> + @deploy:prod x", "sign", "sign"),
    ("+ @unknown:prod x", "nothing", "nothing"),
    ("+ see @deploy:prod x", "nothing", "nothing"),
    ("+1 @deploy:prod x", "nothing", "nothing"),
]


def test_a_line_of_a_diff_on_a_terminal_is_not_a_list_item(subtests: pytest.Subtests) -> None:
    """Agents indent their own lists; the decoration of a profile takes precedence."""
    for line, program, agent in DIFF_LINES:
        with subtests.test(repr(line)):
            for name, expected in (("generic", program), ("pi", agent), ("claude", agent)):
                grammar = terminal_grammar(name)
                found = "a directive" if grammar.line(make_line(line, 0.0)) else "nothing"
                assert (grammar.passed_over[0].why if grammar.passed_over else found) == expected, name
            if program == "diff":
                assert not terminal_grammar("pi", DECORATION).passed_over
            assert bool(Grammar(known).line(make_line(line, 0.0))) == bool(
                terminal_grammar("pi", DECORATION).line(make_line(line, 0.0))
            )


TYPOS = {
    "@deplyo:prod x": "@deploy:",
    "- @Deplyo:prod x": "@deploy:",
    "@deploys:prod x": "@deploy:",
    "@memroy:save x": "@memory:",
    "@relya:Bob <<<": "@relay:",
    "@delay:Bob x": None,  # a word of its own, though like @relay
    "@param:x y": None,
    "@media:print": None,
    "@property": None,
    "dev@relya.com:x": None,
    "see @deplyo:prod": None,
    "`@deplyo:prod`": None,
    "@deplyo: was wrong": None,
    "\\@deplyo:prod x": None,
    "```\n@deplyo:prod x\n```": None,
}


def test_a_misspelt_namespace_is_passed_over_and_any_other_word_is_text(subtests: pytest.Subtests) -> None:
    registry = Registry()
    for namespace in ("deploy", "memory", "relay"):
        registry.add_pattern(namespace, lambda: None)
    for text, meant in TYPOS.items():
        with subtests.test(text):
            grammar = Grammar(registry.knows, meant=registry.meant)
            found = [grammar.line(make_line(line, 0.0)) for line in text.split("\n")]
            assert not any(found)
            assert [one.meant for one in grammar.passed_over] == ([] if meant is None else [meant])


def test_a_typo_of_a_disabled_namespace_is_text() -> None:
    grammar = Grammar(known, acts_on=lambda namespace: False, meant=lambda namespace: "deploy")
    assert grammar.line(make_line("@deplyo:prod x", 0.0)) == [] and grammar.passed_over == []


def test_a_disabled_namespace_is_passed_over_with_its_whole_form() -> None:
    grammar = Grammar(known, acts_on=lambda namespace: namespace == "relay")
    text = "@deploy:prod x\n@deploy:prod <<<\n@relay:Bob in it\n>>>\n@relay:Bob hi\n@deploy:b <<<\n@relay:"
    found = [
        one
        for time, line in enumerate(text.split("\n"))
        for one in grammar.line(make_line(line, float(time)))
    ]
    assert [(one.namespace, one.body) for one in found + grammar.turn_end(9.0)] == [("relay", "hi")]
    assert [(one.line.text, one.why) for one in grammar.passed_over] == [
        ("@deploy:prod x", "setting"),
        ("@deploy:prod <<<", "setting"),
        ("@deploy:b <<<", "setting"),
    ]


@pytest.mark.parametrize(
    ("line", "bodies"),
    [
        ("@relay:Bob one two", ["one two"]),
        ("@relay:Bob see @types/node and a@b.org:25", ["see @types/node and a@b.org:25"]),
        ("@relay:Bob see @unknown:prod", ["see @unknown:prod"]),
        ("@relay:Bob one @relay:Ann two", []),
        ("@relay:Bob <<< one two", []),
        ("@relay:Bob <<<", []),
    ],
)
def test_only_a_lone_directive_counts_where_paragraphs_are_drawn_as_one_line(
    line: str, bodies: list[str]
) -> None:
    """In aider's Markdown, two directives look like one that mentions another, and lines have no end."""
    grammar = terminal_grammar("aider")
    assert [one.body for one in grammar.line(make_line(line, 0.0))] == bodies
    assert [one.why for one in grammar.passed_over] == ([] if bodies else ["joined"])
    assert len(terminal_grammar("pi").line(make_line(line, 0.0))) == (not line.endswith("<<<"))
