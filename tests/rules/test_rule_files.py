"""hooks.json files: both formats, their fields, and messages about errors (R11-R13, R16, R17, R22)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules import json_positions
from relay.rules.engine import DEADLINE
from relay.rules.event import EVENTS
from relay.rules.rule import Rule
from relay.rules.rule_file import LONGEST_TIMEOUT, parse

PATH = Path("/project/hooks.json")
GUARD = {"type": "command", "command": "./guard.sh"}


def read(value: object) -> tuple[list[Rule], list[str]]:
    """Return the result of a file: `value` as JSON, or as literal text or bytes."""
    content = value if isinstance(value, str | bytes) else json.dumps(value)
    rules, warnings = parse(PATH, content.encode() if isinstance(content, str) else content, "user")
    return rules, [str(warning) for warning in warnings]


def hooks(event: str = "PreToolUse", *entries: object) -> dict[str, Any]:
    return {"hooks": {event: list(entries)}}


def only(value: object) -> Rule:
    """Return the rule of a file that contains one, and no errors."""
    (rule,), warnings = read(value)
    assert warnings == []
    return rule


def refused(value: object) -> str:
    """Return the warning about a file whose only rule is skipped."""
    rules, (warning,) = read(value)
    assert rules == []
    return warning


@pytest.mark.parametrize(
    "event",
    [
        *("UserPromptSubmit", "SessionStart", "SessionEnd", "PreToolUse", "PostToolUse"),
        *("PostToolUseFailure", "Stop", "PreCompact"),
    ],
)
def test_each_event_takes_commands_in_both_shapes(event: str) -> None:
    """R11, R12: none of these eight events is ever removed."""
    (group, flat), warnings = read(hooks(event, {"hooks": [GUARD]}, GUARD))
    assert warnings == []
    assert (group.shape, flat.shape) == ("group", "flat")
    assert {group.event, flat.event} == {event}
    assert group.command == flat.command == "./guard.sh"


def test_rules_are_in_firing_order_and_have_line_numbers() -> None:
    """R12"""
    rules, warnings = read(
        """{"hooks": {
            "Stop": [
                {"type": "command", "command": "one"},
                {"hooks": [
                    {"type": "command", "command": "two"},
                    {"type": "command", "command": "three"}]}],
            "SessionEnd": [{"type": "command",
                            "command": "four"}]}}"""
    )
    assert warnings == []
    assert [(rule.command, rule.line) for rule in rules] == [
        ("one", 3),
        ("two", 5),
        ("three", 6),
        ("four", 7),
    ]
    assert rules[0].place == "/project/hooks.json:3"


def test_a_rule_has_defaults() -> None:
    """R13: 60 seconds, everything matches, and relay waits for it."""
    rule = only(hooks("PreToolUse", GUARD))
    assert (rule.timeout, str(rule.matcher), rule.background, rule.args) == (60.0, "*", False, None)
    assert (rule.kind, rule.prompt, rule.origin) == ("command", "", "user")


def test_every_field_of_a_command_is_read() -> None:
    """R13: arguments mean a program that runs without a shell."""
    rule = only(
        hooks(
            "PostToolUse",
            GUARD
            | {
                "matcher": "Edit",
                "timeout": 2.5,
                "args": ["-x", "a b"],
                "async": True,
                "name": "  the linter ",
            },
        )
    )
    assert (str(rule.matcher), rule.timeout, rule.args) == ("Edit", 2.5, ("-x", "a b"))
    assert (rule.background, rule.name) == (True, "the linter")


def test_a_prompt_is_literal_text() -> None:
    """R16"""
    rule = only(hooks("UserPromptSubmit", {"type": "prompt", "prompt": "Answer in\nmarkdown."}))
    assert (rule.kind, rule.prompt, rule.command, rule.name) == (
        *("prompt", "Answer in\nmarkdown.", ""),
        "prompt",
    )


def test_a_settings_file_of_claude_code_is_read() -> None:
    """R12: other settings and unknown fields are ignored."""
    settings = {
        "permissions": {"allow": ["Read"]},
        "model": "opus",
        "hooks": {"Stop": [{"hooks": [GUARD | {"statusMessage": "Checking"}], "description": "x"}]},
    }
    assert only(settings).event == "Stop"


@pytest.mark.parametrize("event", [{"hooks": GUARD}, GUARD], ids=["group", "flat"])
def test_a_single_object_means_a_list_of_one(event: object) -> None:
    """R12"""
    assert only({"hooks": {"Stop": event}}).command == "./guard.sh"


@pytest.mark.parametrize("event", sorted(set(EVENTS) - {"UserPromptSubmit"}))
def test_prompts_are_only_for_prompt_submission(event: str) -> None:
    """R17: the warning names file, line, event and what is allowed; the other rules are in force."""
    rules, (warning,) = read(hooks(event, GUARD, {"type": "prompt", "prompt": "x"}, GUARD | {"name": "last"}))
    assert len(rules) == 2
    assert warning == (
        f"/project/hooks.json:1: {event}: rules of the type 'prompt' are not for {event}. "
        f"Allowed for {event}: command. Skipped."
    )


@pytest.mark.parametrize("kind", ["http", "agent", "mcp_tool"])
@pytest.mark.parametrize("shape", ["flat", "group"])
def test_known_types_that_relay_does_not_run_are_skipped(kind: str, shape: str) -> None:
    """R22"""
    handler = {"type": kind, "url": "https://example.org"}
    warning = refused(hooks("PreToolUse", handler if shape == "flat" else {"hooks": [handler]}))
    assert (
        f"relay does not run rules of the type {kind!r}. Allowed for PreToolUse: command. Skipped." in warning
    )


def test_a_prompt_in_a_group_is_skipped() -> None:
    """R16, R22: there, it is not literal text."""
    warning = refused(hooks("UserPromptSubmit", {"hooks": [{"type": "prompt", "prompt": "Is this fine?"}]}))
    assert "a prompt in a group calls a model" in warning


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("preToolUse", "Did you mean PreToolUse? The events are UserPromptSubmit, SessionStart,"),
        ("Nonsense", "there is no such event. Skipped. The events are"),
        ("SubagentStop", "relay runs no rules for this Claude Code event"),
        ("PermissionRequest", "relay runs no rules for this Claude Code event"),
        ("PostCompact", "relay runs no rules for this Claude Code event"),
    ],
)
def test_an_event_that_takes_no_rules_is_reported(event: str, expected: str) -> None:
    """R11, R17"""
    rules, (warning,) = read({"hooks": {event: [GUARD], "Stop": [GUARD]}})
    assert [rule.event for rule in rules] == ["Stop"]
    assert event in warning
    assert expected in warning


MISTAKES = [
    ({"type": "command"}, 'the command is missing. Write it as "command"'),
    ({"type": "command", "comand": "ls"}, 'Is "comand" a typo?'),
    ({"type": "command", "command": ""}, "the command is missing"),
    ({"type": "command", "command": "  "}, "command is"),
    ({"type": "command", "command": ["ls"]}, 'command is ["ls"]; write a string.'),
    ({"type": "command", "command": "a\0b"}, "contains a NUL character"),
    ({"type": "command", "command": "a\ud800b"}, "contains half a character"),
    ({"type": "command", "command": "x" * (1 << 17)}, "Make it a script."),
    ({"type": "command", "command": "x", "args": "-x"}, "write a list of strings"),
    ({"type": "command", "command": "x", "args": [1]}, "write a list of strings"),
    ({"type": "command", "command": "x", "args": ["\0"]}, "args contains a NUL"),
    (GUARD | {"if": "Edit|Write"}, 'the condition "Edit|Write" never holds: write one tool, such as "Read"'),
    (GUARD | {"if": "WebFetch(domain:x)"}, "only conditions of Bash and of tools for files may say more"),
    (GUARD | {"if": "bash(git *)"}, "never holds: no tool is called bash. Did you mean Bash?"),
    (GUARD | {"if": 5}, 'if is 5; write a string, such as "Bash(git push *)".'),
    (GUARD | {"shell": "powershell"}, "relay runs no PowerShell. Call pwsh in the command"),
    (GUARD | {"shell": "zsh"}, 'shell is "zsh"; the only one is "bash".'),
    ({"command": "ls"}, "the rule has no type. Allowed for PreToolUse: command."),
    ({"type": "comand", "command": "ls"}, "Did you mean command?"),
    ({"type": 3, "command": "ls"}, "type is 3."),
    ({"type": None, "command": "ls"}, "type is null."),
    (GUARD | {"matcher": "("}, "is not a regular expression"),
    (GUARD | {"matcher": 3}, "matcher is 3;"),
    (GUARD | {"matcher": ["Bash"]}, 'matcher is ["Bash"]; write a string'),
    ("ls", 'a rule must be an object, not "ls"'),
    ({"hooks": ["ls"]}, 'a handler must be an object, not "ls"'),
]


def test_a_rule_with_a_mistake_is_skipped_and_the_others_are_in_force(subtests: pytest.Subtests) -> None:
    """R13, R17, R20"""
    for rule, expected in MISTAKES:
        with subtests.test(repr(rule)[:99]):
            rules, (warning,) = read(hooks("PreToolUse", GUARD, rule, GUARD))
            assert len(rules) == 2
            assert warning.startswith("/project/hooks.json:1: PreToolUse: ")
            assert expected in warning
            assert warning.endswith("Skipped.")


@pytest.mark.parametrize(
    "timeout", ["-1", "0", '"30"', "true", "NaN", "Infinity", "1e999", "9" * 5000, "[]", "90000"]
)
def test_an_invalid_timeout_is_reported_and_replaced_by_the_default(timeout: str) -> None:
    """R13"""
    (rule,), (warning,) = read(json.dumps(hooks("Stop", GUARD | {"timeout": "T"})).replace('"T"', timeout))
    assert rule.timeout == 60
    assert "relay uses 60." in warning


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"async": "yes"}, 'async is "yes"; write true or false'),
        ({"name": 3}, "name is 3; write a string"),
        ({"once": True}, "once has no effect"),
    ],
)
def test_an_invalid_optional_field_is_reported_and_the_rule_is_in_force(
    field: dict[str, object], expected: str
) -> None:
    """R13"""
    (rule,), (warning,) = read(hooks("Stop", GUARD | field))
    assert (rule.background, rule.name) == (False, "guard.sh")
    assert expected in warning


MATCHED = GUARD | {"matcher": "Bash"}


MISSPELT = [
    (GUARD | {"mather": "Bash"}, '"mather" is read as "matcher"; write it that way.'),
    (GUARD | {"Matcher": "Bash"}, '"Matcher" is read as "matcher"'),
    ({"matchers": "Bash", "hooks": [GUARD]}, '"matchers" is read as "matcher"'),
    ({"matcher": "Bash", "hook": [GUARD]}, '"hook" is read as "hooks"'),
    ({"matcher": "Bash", "Hooks": GUARD}, '"Hooks" is read as "hooks"'),
    (MATCHED | {"timout": 5}, '"timout" has no effect. Did you mean "timeout"?'),
    (MATCHED | {"timeout_ms": 5}, '"timeout_ms" has no effect. Did you mean "timeout"?'),
    (MATCHED | {"mather": "Read"}, '"mather" has no effect. Did you mean "matcher"?'),
    (MATCHED | {"hook": []}, '"hook" has no effect. Did you mean "hooks"?'),
    (MATCHED | {"assync": True}, '"assync" has no effect. Did you mean "async"?'),
    (MATCHED | {"tool_input": {}}, '"tool_input" has no effect here: it belongs in the matcher'),
    ({"matcher": "Bash", "hooks": [GUARD | {"mather": "Read"}]}, '"mather" has no effect'),
    ({"matcher": "Bash", "hooks": [GUARD | {"tool": "Read"}]}, '"tool" has no effect here'),
    ({"matcher": "Bash", "hooks": [GUARD], "matchr": "Read"}, '"matchr" has no effect'),
]


def test_a_misspelt_key_is_reported_and_disables_no_guard(subtests: pytest.Subtests) -> None:
    """R17: and the guard still runs for no other events."""
    for rule, expected in MISSPELT:
        with subtests.test(repr(rule)):
            (found,), (warning,) = read(hooks("PreToolUse", rule))
            assert (str(found.matcher), found.command) == ("Bash", "./guard.sh")
            assert expected in warning


def test_a_tool_next_to_the_matcher_is_reported() -> None:
    """R17"""
    for key in ("tool", "tool_name"):
        _, (warning,) = read(hooks("PreToolUse", GUARD | {key: "Bash"}))
        assert 'belongs in the matcher, as in "matcher": {"tool_name": "..."}.' in warning


def test_a_misspelt_type_is_reported() -> None:
    assert 'Is it "typ"? Allowed' in refused(hooks("Stop", {"typ": "command", "command": "x"}))


@pytest.mark.parametrize("key", ["comment", "comments", "note", "id", "statusMessage", "model", "_"])
def test_keys_unlike_any_known_one_are_ignored(key: str) -> None:
    """R12: some are Claude Code's."""
    only(hooks("PreToolUse", GUARD | {key: "x"}))
    only(hooks("PreToolUse", {"hooks": [GUARD | {key: "x"}], key: "x"}))


@pytest.mark.parametrize("value", [[], "./x", None, 3], ids=repr)
def test_a_group_without_rules_is_reported(value: object) -> None:
    """R17"""
    warning = refused(hooks("PreToolUse", {"matcher": "Bash", "hooks": value}))
    assert f"hooks is {json.dumps(value)}, so the group has no rules; write a list of them" in warning


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ("bash", 'no tool is called "bash". Did you mean "Bash"? Case matters.'),
        ("Edit|WRITE", 'no tool is called "WRITE". Did you mean "Write"?'),
        ("WebFecth", 'no tool is called "WebFecth". Did you mean "WebFetch"?'),
        ("Edit Write", 'no tool is called "Edit Write"; between names, write |.'),
        (
            "mcp__memory",
            '"mcp__memory" is an MCP server, not a tool; for all its tools, write mcp__memory__.*',
        ),
        ("^bash", '"^bash" matches none of the tools that relay knows.'),
        ("Bash(git *)", '"Bash(git *)" is a condition: write "matcher": "Bash", "if": "Bash(git *)".'),
        ("(?i)bash", "Claude Code does not know (?i) in a regular expression: its own hooks never run."),
        ({"tool_name": "webfetch"}, 'no tool is called "webfetch". Did you mean "WebFetch"?'),
        (
            {"tool": "Bash"},
            'no agent reports "tool", so no event will match. Did you',
        ),
        ({"Tool_Name": "Bash"}, "Did you mean tool_name? The fields are tool_name, tool_input,"),
        ({"command": "*rm*"}, 'no agent reports "command"'),
        ({"error": "x"}, 'no agent reports "error"'),
    ],
)
def test_a_matcher_that_fits_nothing_is_reported(matcher: object, expected: str) -> None:
    """R17, R20: the rule stays as written."""
    (rule,), (warning,) = read(hooks("PreToolUse", GUARD | {"matcher": matcher}))
    assert expected in warning
    assert str(rule.matcher) == (matcher if isinstance(matcher, str) else json.dumps(matcher))


@pytest.mark.parametrize(
    "matcher",
    [
        "task|edit",
        "mcp__X__y",
        "MyTool",
        "MultiEdit",
        "^mcp__x",
        "^(?!Bash$)",
        {"tool_input.x": 1, "cwd": "/x"},
        {"tool_name": "b*"},
    ],
)
def test_a_matcher_that_may_fit_is_accepted(matcher: object) -> None:
    only(hooks("PreToolUse", GUARD | {"matcher": matcher}))


def test_a_matcher_of_several_rules_is_reported_once() -> None:
    """R17"""
    for event, matcher in (("PreToolUse", "bash"), ("Stop", "Bash")):
        rules, warnings = read(hooks(event, {"matcher": matcher, "hooks": [GUARD, GUARD | {"command": "x"}]}))
        assert (len(rules), len(warnings)) == (2, 1)


def test_a_timeout_beyond_the_deadline_of_an_event_is_reported() -> None:
    """R13: only if relay waits for the rule."""
    (rule,), (warning,) = read(hooks("Stop", GUARD | {"timeout": 300}))
    assert rule.timeout == DEADLINE
    assert "timeout is 300, but all rules of an event together have only 85 seconds" in warning
    assert only(hooks("Stop", GUARD | {"timeout": 300, "async": True})).timeout == 300
    assert only(hooks("Stop", GUARD | {"timeout": DEADLINE})).timeout == DEADLINE


def test_a_matcher_without_effect_is_reported_and_the_rule_is_in_force() -> None:
    """R19: for an event that has nothing to match, as in Claude Code; and inside a group's hooks."""
    (rule,), (warning,) = read(hooks("Stop", GUARD | {"matcher": "Bash"}))
    assert str(rule.matcher) == "*"
    assert 'the matcher "Bash" has no effect' in warning
    (rule,), (warning,) = read(hooks("PreToolUse", {"hooks": [GUARD | {"matcher": "Bash"}]}))
    assert str(rule.matcher) == "*"
    assert "it belongs next to hooks" in warning


def test_a_rule_keeps_its_id_at_any_position() -> None:
    """R14: an id depends on file, event, matcher and command; identical rules of a file are numbered."""
    first, second = (read(hooks("Stop", *rules))[0] for rules in ([GUARD], [GUARD | {"command": "x"}, GUARD]))
    assert first[0].id == second[1].id
    assert len(first[0].id) == 8
    (one, same, other_event, other_matcher), _ = read(
        {"hooks": {"Stop": [GUARD, GUARD], "PreToolUse": [GUARD, GUARD | {"matcher": "Bash"}]}}
    )
    assert same.id == f"{one.id}-2"
    assert len({one.id, same.id, other_event.id, other_matcher.id}) == 4
    (elsewhere,), _ = parse(Path("/other/hooks.json"), json.dumps(hooks("Stop", GUARD)).encode(), "user")
    assert elsewhere.id != one.id


NAMES = [
    ("./guard.sh --strict", "guard.sh"),
    ('"$CLAUDE_PROJECT_DIR"/.claude/hooks/x.sh', "x.sh"),
    ("python3 -u /srv/x.py a b", "x.py"),
    ("/usr/bin/python3.11 'my hooks/x.py'", "x.py"),
    ("python3 -m mypy --strict", "mypy"),
    ("python3", "python3"),
    ("python -c 'print(1)'", "python"),
    ("bash -c 'ls | wc'", "bash"),
    ("A=1 B=2 env node ./x.js", "x.js"),
    ("jq .tool_input", "jq"),
    ("cat; echo x", "cat"),
    ("(cd x && ./y.sh)", "(cd x && ./y.sh)"),
    ("date>/tmp/x", "date"),
    ("./a#b.sh # comment", "a#b.sh"),
    ("echo 'not closed", "echo"),
    ("cat <<'END'\nx\nEND", "cat"),
]


def test_a_rule_is_named_after_its_script_or_program(subtests: pytest.Subtests) -> None:
    """R13"""
    for command, name in NAMES:
        with subtests.test(command):
            assert only(hooks("Stop", {"type": "command", "command": command})).name == name


def test_a_rule_with_arguments_is_named_after_its_script() -> None:
    rule = {"type": "command", "command": "/usr/bin/python3", "args": ["a folder/x.py"]}
    assert only(hooks("Stop", rule)).name == "x.py"


INVALID_FILES = [
    ("", ":1", "it is not JSON: it ends too early (column 1)"),
    ("nonsense", ":1", "expected a string in double quotes, a number, true, false, null, a list"),
    ('{"hooks": True}', ":1", "null, a list or an object (column 11)"),
    (
        '{\n // mine\n "hooks": {}}',
        ":2",
        "JSON has no comments; remove this one (column 2)",
    ),
    ('{"hooks": {} /* mine */}', ":1", "JSON has no comments"),
    ('{"hooks": {}\n# mine\n}', ":2", "JSON has no comments"),
    ("{\u201chooks\u201d: {}}", ":1", 'JSON strings need straight double quotes (") instead of \u201c'),
    (
        '{"hooks": {"Stop": \u201ex\u201c}}',
        ":1",
        'JSON strings need straight double quotes (") instead of \u201e',
    ),
    ('{"hooks": {\n"Stop', ":2", "the string that begins here has no end (column 1)"),
    ('{"hooks": "\\x"}', ":1", "a backslash in a string; write two (column 12)"),
    ('{"hooks": "\\u12"}', ":1", "\\u needs four hexadecimal digits"),
    ('{"hooks": {\n"Stop": [1,]}}', ":2", "there is an extra ',' before ']' (column 12)"),
    ('{"hooks": {\n "Stop": []', ":2", "a ',' or '}' is missing"),
    ("{'hooks': 1}", ":1", "JSON strings need straight double quotes (\") instead of '"),
    ("{hooks: 1}", ":1", "a name in double quotes is missing"),
    ('{"hooks" {}}', ":1", "a ':' is missing after the name"),
    ('{"hooks": {}} x', ":1", "there is text after the end"),
    (
        '{"hooks": "a\0b"}',
        ":1",
        "a string contains a line break or another control character; for a line break write \\n",
    ),
    ("[" * 5000, ":1", "nested too deeply"),
    ('{"hooks": {"Stop": ' + "[" * 5000, ":1", "nested too deeply"),
    (b"\xff{}", "", "it is not UTF-8 (byte 1)"),
    (b'{"hooks": {"Stop": []}}' + b" " * (1 << 20), "", "it has more than 1 MB"),
    ("[]", ":1", "it has no rules"),
    ("{}", ":1", "it has no rules"),
    ('{\n"hooks": []}', ":2", "it has no rules"),
    ('{"hooks": null}', ":1", "it has no rules"),
    ('{"PreToolUse": []}', ":1", 'it has no rules: write {"hooks": {"PreToolUse": [...]}}'),
    ('{"disableAllHooks": true, "hooks": {"Stop": []}}', ":1", "none of its rules applies"),
]


def test_an_invalid_file_gives_one_warning(subtests: pytest.Subtests) -> None:
    """R12, R20"""
    for content, place, expected in INVALID_FILES:
        with subtests.test(repr(content[:99])):
            warning = refused(content)
            assert warning.startswith(f"/project/hooks.json{place}: ")
            assert expected in warning


def test_duplicate_keys_are_reported_and_the_last_one_counts() -> None:
    """R12"""
    rules, warnings = read(
        '{"hooks": {"Stop": [{"type": "command", "command": "one", "command": "two"}],\n "Stop": 1, '
        '"SessionEnd": [{"type": "command", "command": "one", "command": "two"}]}}'
    )
    assert [rule.command for rule in rules] == ["two"]
    assert '"Stop" appears here more than once' in warnings[0]
    assert '"command" appears here more than once' in warnings[2]


def test_a_byte_order_mark_is_ignored() -> None:
    assert only(b"\xef\xbb\xbf" + json.dumps(hooks("Stop", GUARD)).encode()).event == "Stop"


def test_five_hundred_rules_are_read() -> None:
    rules, warnings = read(hooks("Stop", *(GUARD | {"command": f"x{n}"} for n in range(500))))
    assert (len(rules), len({rule.id for rule in rules}), warnings) == (500, 500, [])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["command", "Bash"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "hooks",
                    "Stop",
                    "PreToolUse",
                    "type",
                    "command",
                    "prompt",
                    "matcher",
                    "timeout",
                    "args",
                    "async",
                ]
            ),
            inner,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
def test_any_json_is_read(value: object) -> None:
    """R12, R17: no value of any type is fatal, and each resulting rule can run."""
    for content in (
        value,
        {"hooks": value},
        {"hooks": {"Stop": value, "PreToolUse": [GUARD | {"matcher": value}]}},
    ):
        for rule in read(content)[0]:
            assert rule.command
            assert rule.timeout <= LONGEST_TIMEOUT


FILE = json.dumps({"hooks": {"PreToolUse": [GUARD | {"matcher": "Bash"}]}}).encode()


@given(st.binary(max_size=20), st.integers(0, len(FILE)), st.integers(0, len(FILE)))
def test_a_damaged_file_loses_no_guard_silently(junk: bytes, start: int, end: int) -> None:
    """R12: either the file is not JSON, or each rule is in force or has a warning."""
    content = FILE[:start] + junk + FILE[end:]
    rules, warnings = parse(PATH, content, "user")
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except ValueError:
        assert rules == []
        assert [warning.unread for warning in warnings] == [True]
    else:
        assert rules or warnings or not any(value["hooks"].values())


@given(VALUES)
def test_json_is_read_as_by_the_standard_library(value: object) -> None:
    """The reader that tracks lines agrees with the standard library's."""
    text = json.dumps(value, indent=1)
    assert repr(json_positions.parse(text).plain()) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        ("PreToolUse", {"if": "bash"}, 'no tool is called "bash". Did you mean "Bash"?'),
        ("PreToolUse", {"if": "mcp__memory"}, "is an MCP server, not a tool"),
        ("SessionStart", {"matcher": "begin"}, '"begin" matches none of startup, resume, clear, compact.'),
        ("PreCompact", {"matcher": "^man$"}, '"^man$" matches none of manual, auto.'),
        ("PreToolUse", {"asyncRewake": True}, "relay does not wake the agent"),
    ],
)
def test_a_rule_that_can_hardly_work_is_reported(event: str, fields: dict[str, Any], expected: str) -> None:
    (rule,), (warning,) = read(hooks(event, GUARD | fields))
    assert expected in warning
    assert rule.background is ("asyncRewake" in fields)


def test_a_condition_needs_a_tool() -> None:
    """As in Claude Code, where a hook for another event never runs with one."""
    assert "Stop is not about a tool, so the condition `if` never holds" in refused(
        hooks("Stop", GUARD | {"if": "Bash"})
    )
