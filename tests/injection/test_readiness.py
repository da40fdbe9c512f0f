"""The verdict on an agent: ready, working, prompting, failed or unsafe, by the shipped rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from ptyagent import shipped

from relay import data
from relay.agents.profile import PromptKind
from relay.shim.process_wait import Wait
from relay.state.evidence import Evidence
from relay.state.readiness import (
    FAILURE,
    PROMPT_LEASE,
    QUIET,
    REPORT_LEASE,
    SCREEN_QUIET,
    WORK_LEASE,
    TerminalSnapshot,
    Verdict,
    danger,
    judge,
)
from relay.state.readiness import (
    QUOTED as QUOTED_RULE,
)
from relay.terminal.tty_state import TtyState

GENERIC = shipped()
CLAUDE = shipped("claude")
LINES = TerminalSnapshot(
    tty=TtyState(canonical=True, echo=True, icrnl=True, foreground=7, agent_group=7),
    wait=Wait.READ,
    same=False,
    quiet=0.0,
    output_pending=False,
    unwritten=0,
    bracketed_paste=False,
    alternate=False,
    unfinished="> ",
    rows=(),
)
SCREEN = replace(
    LINES,
    tty=replace(LINES.tty, canonical=False, echo=False),
    wait=Wait.POLL,
    quiet=SCREEN_QUIET,
    bracketed_paste=True,
)


def _state(sight: TerminalSnapshot, **changes: object) -> str:
    return str(judge(replace(sight, **changes), GENERIC).state)  # type: ignore[arg-type]


LINE_PROGRAMS = [
    ({}, "ready"),
    ({"same": True}, "working"),  # it has not read the last typed text
    ({"same": True, "quiet": QUIET}, "ready"),
    ({"wait": Wait.POLL}, "working"),
    ({"wait": Wait.POLL, "quiet": QUIET}, "ready"),
    ({"wait": Wait.UNKNOWN, "quiet": QUIET}, "ready"),
    ({"wait": Wait.BUSY, "quiet": 60.0}, "working"),
    ({"output_pending": True}, "working"),
    ({"unwritten": 1}, "working"),
    ({"alternate": True}, "unsafe"),
    ({"tty": replace(LINES.tty, foreground=8)}, "unsafe"),
    ({"tty": replace(LINES.tty, foreground=0)}, "working"),
    ({"tty": replace(LINES.tty, echo=False)}, "prompting"),
]


def test_a_line_program_is_judged_by_its_terminal(subtests: pytest.Subtests) -> None:
    for changes, state in LINE_PROGRAMS:
        with subtests.test(repr(changes)):
            assert _state(LINES, **changes) == state


SCREEN_PROGRAMS = [
    ({}, "ready"),
    ({"quiet": SCREEN_QUIET / 2}, "working"),
    ({"wait": Wait.BUSY}, "working"),
    ({"bracketed_paste": False}, "ready"),
    ({"bracketed_paste": False, "unfinished": "q to quit"}, "unsafe"),
    ({"alternate": True}, "unsafe"),
    ({"rows": ("Allow?", "❯ 1. Yes", "  2. No")}, "prompting"),
    ({"rows": ("Would you like to run it", "Press enter to confirm or esc to cancel")}, "prompting"),
    ({"rows": ("Overwrite the file (y/n)",)}, "prompting"),
    ({"rows": ("❯ 1. Yes", *["said later"] * 12, "> ")}, "working"),  # may be a quotation
    ({"rows": ("❯ 1. Yes", *["said later"] * 25, "> ")}, "ready"),
    ({"rows": ("Thinking… (esc to interrupt)", *["said later"] * 8, "> ")}, "working"),
    (
        {
            "rows": ("said", "╭──────────╮", "│ >        │", "╰──────────╯", "  ? for help"),
            "unfinished": "x",
        },
        "ready",
    ),
    (
        {
            "rows": ("said", "╭──────────╮", "│ > dear   │", "╰──────────╯", "  ? for help"),
            "unfinished": "x",
        },
        "working",
    ),
    ({"rows": ("said", "Which one?", "❯ red", "  blue"), "unfinished": "  blue"}, "prompting"),
    ({"rows": ("said", "Select one:", "1. red", "2. blue", "> ")}, "prompting"),
    ({"rows": ("something", "else"), "unfinished": "else"}, "unsafe"),
]


def test_a_program_that_draws_its_input_is_judged_by_its_screen(subtests: pytest.Subtests) -> None:
    for changes, state in SCREEN_PROGRAMS:
        with subtests.test(repr(changes)):
            assert _state(SCREEN, **changes) == state


QUESTIONS = [
    "Install? [Y/n] ",
    "Overwrite (yes/no)? ",
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ",
    "Password: ",
    "Enter passphrase for key '/home/a/.ssh/id': ",
    "[sudo] password for bob: ",
    "Press any key to continue . . .",
    "Hit RETURN",
    "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    "Which one? ",
    "Select an option: ",
    "Choice [1-3]: ",
    "--More--",
    "本当に？",
    "Continue? > ",
]


def test_a_question_is_prompting(subtests: pytest.Subtests) -> None:
    for line in QUESTIONS:
        with subtests.test(repr(line)):
            assert _state(LINES, unfinished=line) == "prompting"
            assert _state(SCREEN, unfinished=line) == "prompting"


@pytest.mark.parametrize("line", ["", "> ", "You: ", "user> ", "Message: ", "Alice says hi", "agent> "])
def test_an_ordinary_prompt_is_ready(line: str) -> None:
    assert _state(LINES, unfinished=line) == "ready"


UNSAFE_PROMPTS = [
    "❯ ",  # of a shell behind ssh, docker or script
    "λ ",
    "~/src main ❯ ",
    "➜ ",
    "$ ",
    "bob@host:~/src$ ",
    "# ",
    "host% ",
    ">>> ",
    "... ",
    "sqlite> ",
    "shop=# ",
    "shop-> ",
    "(gdb) ",
    "(Pdb) ",
    "In [3]: ",
]


def test_the_prompt_of_a_shell_or_interpreter_is_unsafe(subtests: pytest.Subtests) -> None:
    for line in UNSAFE_PROMPTS:
        with subtests.test(repr(line)):
            assert _state(LINES, unfinished=line) == "unsafe"
            drawn = ("done", line.rstrip())
            assert _state(SCREEN, unfinished=line, rows=drawn, drawn=drawn) == "unsafe"


def test_a_question_in_printed_text_is_not_the_programs() -> None:
    printed = ("@relay:Bob Do you want to play?", "1. one", "> 2. two")
    assert _state(LINES, unfinished="", rows=printed) == "ready"


def test_an_answered_choice_is_not_a_question() -> None:
    assert _state(LINES, rows=("Install? [Y/n] y", "> ")) == "ready"
    assert _state(LINES, rows=("Install? [Y/n]", "> ")) == "prompting"


def test_a_shell_is_ready_only_if_the_user_opts_in() -> None:
    shell = shipped("shell")
    assert judge(replace(LINES, unfinished="$ "), shell).state == "unsafe"
    assert judge(replace(LINES, unfinished="$ "), replace(shell, inject="auto")).state == "ready"


SCREENS = data.directory("patterns") / "screens"
RULE = "─" * 60
BOX = (RULE, "❯", RULE)
AT_INPUT = ("● Done.", *BOX, "  ? for shortcuts")
AT_WORK = ("● Reading", "✻ Thinking… (3s)", *BOX, "  esc to interrupt")
DIALOG = (RULE, " Bash command", " Do you want to proceed?", " ❯ 1. Yes", "   2. No", " Esc to cancel")
PLAN = (RULE, " Ready to code?", " Would you like to proceed?", " ❯ 1. Yes", "   2. No", " ctrl+g to edit")
FAILED = ("● API Error: 401 nobody is logged in", *BOX, "  ? for shortcuts")
LIMITED = (
    "● Usage limit reached · set to continue automatically at 11:44am",
    *BOX,
    "  ⚠ Usage limit reached · limit resets 11:44am",
    "    Continuing automatically at 11:44am · Esc to cancel",
    "  ⏸ manual mode on · ? for shortcuts",
)
UNKNOWN = ("something that no rule knows",)
QUOTED = ("● It asked:", "  Do you want to proceed?", "  ❯ 1. Yes", "    2. No", "  Esc to cancel", *AT_INPUT)
QUOTED_EARLIER = (*QUOTED[:-5], "● Three more rows:", "  one,", "  two.", *AT_INPUT)
DEEP_PLAN = (
    RULE,
    "   Exit plan mode?",
    "    Claude wants to exit plan mode",
    "    ❯ 1. Yes, and switch",
    "      2. No",
)
TODO = ("  ⎿  ☒ Look at it", *(f"     ☐ Board {number}" for number in range(8)))
LONG_TEXT = (
    "❯ [relay ab12 from Zed] steady rain",
    *["  falls on quiet hills"] * 7,
    "  and walls [/relay ab12]",
)
LONG_QUIET = WORK_LEASE


def screen(agent: str, name: str) -> tuple[str, ...]:
    """Return the rows of a rendered screen of a real agent."""
    rows = (SCREENS / agent / f"{name}.txt").read_text("utf-8").splitlines()
    return tuple(row for row in rows if not row.startswith("# "))


def _claude(drawn: tuple[str, ...], quiet: float = SCREEN_QUIET, **changes: object) -> Verdict:
    sight = replace(SCREEN, drawn=drawn, rows=drawn, unfinished=drawn[-1], quiet=quiet)
    return judge(replace(sight, **changes), CLAUDE)  # type: ignore[arg-type]


CLAUDE_SCREENS = [
    (AT_INPUT, "ready", "empty input"),
    (AT_WORK, "working", "footer of a turn"),
    (DIALOG, "prompting", "permission dialog"),
    (QUOTED, "prompting", "keys of a dialog"),  # only the agent's own report could tell the difference
    (QUOTED_EARLIER, "working", QUOTED_RULE),
    (UNKNOWN, "working", ""),
    ((*AT_INPUT, *DIALOG), "prompting", "permission dialog"),
    (
        (*DIALOG, *AT_INPUT),
        "prompting",
        "keys of a dialog",
    ),  # above its input, or answered and not erased
    (PLAN, "prompting", "plan approval"),
    (DEEP_PLAN, "prompting", "plan approval"),
    ((*PLAN, *AT_INPUT), "prompting", "numbered options"),
    (
        ("● Bash(touch x)", "  Do you want to proceed?", "  ❯ 1. Yes", *BOX),
        "prompting",
        "numbered options",
    ),
    (("  esc to interrupt", *BOX), "working", "key that interrupts"),
    (("✽ Mending… (31s · ↓ 2k tokens)", *TODO, *BOX), "working", "spinner"),
    (("✽ Mending… (31s · ↓ 2k tokens)", "● Done.", "✻ Baked for 31s", *BOX), "ready", "empty input"),
    (("● Done.", RULE, *LONG_TEXT, RULE, "  ? for shortcuts"), "working", "text in the input"),
    (
        ("● Done.", "╭─────────╮", "│ >       │", "╰─────────╯", "  ? for shortcuts"),
        "ready",
        "empty input",
    ),
    (("● Done.", "❯", "  ? for shortcuts"), "ready", "empty input"),
]


def test_state_rules_decide_what_is_on_the_screen(subtests: pytest.Subtests) -> None:
    """R96: quiet alone never makes such an agent ready."""
    for drawn, state, rule in CLAUDE_SCREENS:
        with subtests.test(f"{state}, {rule}: {drawn}"):
            verdict = _claude(drawn, quiet=LONG_QUIET)
            assert (verdict.state, verdict.rule) == (state, rule)


@pytest.mark.parametrize("drawn", [QUOTED, QUOTED_EARLIER, (*DIALOG, *AT_INPUT)])
@pytest.mark.parametrize("source", ["hooks", "status"])
def test_a_dialog_above_the_input_is_a_quotation_once_the_turn_is_over(
    drawn: tuple[str, ...], source: Literal["hooks", "status"]
) -> None:
    """The agent's own report decides that; work or a dialog below the input still counts."""
    over = (Evidence(source, "ready"),)
    assert _claude(drawn, quiet=LONG_QUIET, evidence=over).state == "ready"
    below = (*drawn[:-1], "  esc to interrupt · ? for shortcuts")
    assert _claude(below, quiet=LONG_QUIET, evidence=over).state == "working"


def test_the_cursor_distinguishes_a_placeholder_from_a_draft() -> None:
    drawn = ("● Done.", RULE, "❯ Mend the fence, too.", RULE, "  ? for shortcuts")
    assert _claude(drawn, cursor=(2, 2)).state == "ready"
    assert _claude(drawn, cursor=(22, 2)).draft
    assert _claude(drawn).draft
    suggested = tuple(row.replace("Mend the fence, too.", 'Try "mend the fence"') for row in drawn)
    assert _claude(suggested).state == "ready"
    assert _claude(suggested, cursor=(22, 2)).draft


def test_a_title_of_ready_outweighs_an_old_spinner() -> None:
    """After a resize, Gemini's last spinner may remain above its input."""
    bar = "▄" * 60, " >   Type your message or @path/to/file", "▀" * 60
    drawn = (" ⠙ Thinking... (esc to cancel, 3s)", *bar, " ~/project   no sandbox")
    sight = replace(SCREEN, drawn=drawn, rows=drawn, unfinished="", quiet=LONG_QUIET)
    gemini = shipped("gemini")
    assert judge(sight, gemini).state == "working"
    assert judge(replace(sight, title="◇  Ready (project)"), gemini).state == "ready"
    asks = (" Allow execution of: 'touch'?", " ● 1. Allow once", "   2. No", *drawn[1:])
    asking = replace(sight, title="◇  Ready (project)", drawn=asks, rows=asks)
    assert judge(asking, gemini).state == "prompting"


def test_an_interrupted_tool_is_not_an_error() -> None:
    drawn = (
        " Command aborted",
        " Error: This operation was aborted",
        RULE,
        RULE,
        "~/work (main)",
        "↑400 1.5%/100k",
    )
    sight = replace(SCREEN, drawn=drawn, rows=drawn, unfinished="", quiet=LONG_QUIET)
    assert judge(sight, shipped("pi")).state == "ready"
    failed = tuple(row.replace("This operation was aborted", "400: no such model") for row in drawn)
    assert judge(replace(sight, drawn=failed, rows=failed), shipped("pi")).state == "failed"


def test_text_in_pis_input_is_a_draft_however_tall(subtests: pytest.Subtests) -> None:
    """Pi 1.6.0 shows all lines of a pasted text; Enter is pressed while it still draws."""
    pi = shipped("pi")
    for lines in (1, 2, 9):
        for footer in (("~/work (main)", "0.0%/100k (auto)   model"), ("0.0%/100k (auto)   model",)):
            with subtests.test(lines=lines, footer=footer):
                drawn = (RULE, *["some text"] * lines, RULE, *footer)
                sight = replace(SCREEN, drawn=drawn, rows=drawn, unfinished="", quiet=0.0)
                assert judge(sight, pi).state == "working" and danger(sight, pi) is None
                assert judge(replace(sight, quiet=LONG_QUIET), pi).draft


def test_a_screen_that_is_still_being_drawn_is_not_unsafe() -> None:
    """An agent on the alternate screen draws a dialog piece by piece."""
    assert _claude(UNKNOWN, quiet=0.1, alternate=True).state == "working"
    assert _claude(UNKNOWN, alternate=True).state == "unsafe"


def test_a_verdict_names_its_rule_lines_and_kind() -> None:
    verdict = _claude(DIALOG)
    assert verdict.kind == "permission"
    assert verdict.lines == ("Do you want to proceed?", "❯ 1. Yes", "Esc to cancel")
    assert "'permission dialog'" in verdict.reason
    assert _claude(AT_INPUT).kind is None


def test_a_rule_for_ready_still_waits_for_quiet() -> None:
    verdict = _claude(AT_INPUT, quiet=SCREEN_QUIET / 2)
    assert (verdict.state, verdict.wait) == ("working", SCREEN_QUIET / 2)


def test_the_title_outweighs_the_screen() -> None:
    assert _claude(AT_INPUT, title="⠂ Mending it").state == "working"
    assert _claude(AT_INPUT, title="✳ Mending it").state == "ready"


def test_known_screens_are_recognised_on_the_alternate_screen() -> None:
    """An agent may use the alternate screen if its profile knows what it draws."""
    assert _claude(DIALOG, alternate=True).state == "prompting"
    assert _claude(AT_INPUT, alternate=True).state == "ready"
    assert _claude(UNKNOWN, alternate=True).state == "unsafe"


def test_a_drawn_input_is_not_ready_while_the_terminal_is_canonical() -> None:
    aider = replace(LINES, drawn=("─" * 60, "diff>"), rows=("─" * 60, "diff>"), quiet=9.0, unfinished="diff>")
    assert judge(aider, shipped("aider")).state == "working"
    raw = replace(aider, tty=replace(aider.tty, canonical=False, echo=False))
    assert judge(raw, shipped("aider")).state == "ready"


def test_an_error_keeps_the_agent_failed_for_a_while() -> None:
    drawn = ("● API Error: 529 Overloaded", *AT_INPUT[1:])
    verdict = _claude(drawn)
    assert (verdict.state, verdict.rule, verdict.wait) == ("failed", "API error", FAILURE - SCREEN_QUIET)
    assert _claude(drawn, quiet=FAILURE).state == "ready"


def _hooks(state: str, age: float, **more: object) -> tuple[Evidence, ...]:
    return (Evidence("hooks", state, age=age, **more),)  # type: ignore[arg-type]


AUTH = Evidence("status", "prompting", PromptKind.OTHER, "Please run /login")
PERMISSION = Evidence("status", "prompting", PromptKind.PERMISSION)


EVIDENCE = [
    # A hook's *working* ends at an input that was quiet for long: an Esc fires no Stop.
    (AT_INPUT, SCREEN_QUIET, _hooks("working", 9.0), "working"),
    (AT_INPUT, WORK_LEASE, _hooks("working", 9.0), "ready"),
    (UNKNOWN, 60.0, _hooks("working", 60.0), "working"),
    # After a failed turn, a successful one leaves the error on the screen.
    (FAILED, SCREEN_QUIET, _hooks("ready", 9.0), "ready"),
    (FAILED, SCREEN_QUIET, _hooks("failed", 9.0), "failed"),
    (AT_WORK, 0.1, _hooks("failed", 9.0), "working"),
    # Nor does an error of Codex's model fire a hook.
    (FAILED, SCREEN_QUIET, _hooks("working", 9.0), "working"),
    (FAILED, WORK_LEASE, _hooks("working", 9.0), "failed"),
    (FAILED, FAILURE, _hooks("working", 90.0), "ready"),
    # A hook's *prompting* ends when the screen shows what only follows a dialog.
    (AT_INPUT, SCREEN_QUIET, _hooks("prompting", 0.1), "prompting"),
    (AT_INPUT, PROMPT_LEASE, _hooks("prompting", PROMPT_LEASE), "ready"),
    (AT_INPUT, SCREEN_QUIET, _hooks("prompting", PROMPT_LEASE), "prompting"),
    (AT_WORK, 0.1, _hooks("prompting", PROMPT_LEASE), "working"),
    (AT_WORK, 0.1, _hooks("prompting", 0.1), "prompting"),
    (UNKNOWN, 60.0, _hooks("prompting", 60.0), "prompting"),
    # Nothing makes an agent ready over a dialog, or a screen that no rule knows.
    (DIALOG, 60.0, _hooks("ready", 0.1), "prompting"),
    (UNKNOWN, 60.0, _hooks("ready", 0.1), "working"),
    (AT_WORK, 60.0, _hooks("ready", 0.1), "working"),
    (AT_INPUT, 1.0, _hooks("ready", 0.1), "ready"),
    # The report of an error is not a sign of a later dialog.
    (LIMITED, SCREEN_QUIET, _hooks("failed", 9.0), "failed"),
    (LIMITED, FAILURE, _hooks("failed", FAILURE), "ready"),
    # For a while, an error keeps relay away.
    (AT_INPUT, 5.0, _hooks("failed", 5.0), "failed"),
    (AT_INPUT, 5.0, _hooks("failed", FAILURE), "ready"),
    # Status reports rank after the hooks and before the screen. The reporter may have been killed, but
    # its *prompting* still counts.
    (AT_INPUT, REPORT_LEASE - 1, (Evidence("status", "working"),), "working"),
    (AT_INPUT, REPORT_LEASE, (Evidence("status", "working"),), "ready"),
    (AT_INPUT, 60.0, (Evidence("status", "prompting"),), "prompting"),
    (UNKNOWN, 60.0, (Evidence("status", "ready"),), "working"),
    (AT_INPUT, 60.0, (Evidence("status", "ready"),), "ready"),
    (AT_INPUT, 60.0, (Evidence("status", "failed", age=1.0), *_hooks("working", 1.0)), "failed"),
    # An API that rejects the key is not a dialog, whatever the report calls it.
    (AT_INPUT, 5.0, (AUTH, *_hooks("failed", 5.0)), "failed"),
    (FAILED, 5.0, (AUTH, *_hooks("failed", 5.0)), "failed"),
    (AT_INPUT, FAILURE, (AUTH, *_hooks("failed", FAILURE)), "ready"),
    (AT_INPUT, 5.0, (AUTH, *_hooks("ready", 5.0)), "prompting"),
    (AT_INPUT, 5.0, (PERMISSION, *_hooks("failed", 5.0)), "prompting"),
    (UNKNOWN, 5.0, (AUTH, *_hooks("failed", 5.0)), "prompting"),
]


def test_hooks_and_status_reports_are_weighed_against_the_screen(subtests: pytest.Subtests) -> None:
    for drawn, quiet, evidence, state in EVIDENCE:
        with subtests.test(f"{state}: {evidence}, {quiet} s, {drawn}"):
            assert _claude(drawn, quiet, evidence=evidence).state == state


def test_a_draft_above_a_usage_limit_is_not_a_dialog() -> None:
    drawn = (*LIMITED[:2], "❯ Go on, please.", *LIMITED[3:])
    assert LIMITED[2] == BOX[1]
    verdict = _claude(drawn)
    assert (verdict.state, verdict.draft) == ("working", True)
    sight = replace(SCREEN, drawn=drawn, rows=drawn, unfinished=drawn[-1])
    assert danger(sight, CLAUDE, before=LIMITED) is None
    assert danger(sight, CLAUDE, before=AT_INPUT) is not None, "it may be new"


def test_the_verdict_includes_what_the_hooks_report() -> None:
    evidence = _hooks("prompting", 0.5, kind=PromptKind.PERMISSION, detail="Bash\x1b[2J")
    verdict = _claude(AT_WORK, evidence=evidence)
    assert (verdict.kind, verdict.wait) == ("permission", PROMPT_LEASE - 0.5)
    assert "permission" in verdict.reason and "\x1b" not in verdict.reason
    failed = _claude(AT_INPUT, evidence=_hooks("failed", 1.0, detail="529 Overloaded"))
    assert "529 Overloaded" in failed.reason and failed.wait == FAILURE - 1.0


def test_a_status_report_authorises_nothing() -> None:
    """D6: anyone can print one, also a program at the far end of ssh. It may forbid."""
    unknown = replace(SCREEN, bracketed_paste=False, unfinished="q to quit")
    assert judge(unknown, GENERIC).state == "unsafe"
    assert judge(replace(unknown, evidence=(Evidence("status", "ready"),)), GENERIC).state == "unsafe"
    assert judge(replace(unknown, evidence=(Evidence("status", "working"),)), GENERIC).state == "working"
    password = replace(unknown, unfinished="Password: ", evidence=(Evidence("status", "ready"),))
    assert judge(password, GENERIC).state == "prompting"


def test_enter_is_not_pressed_over_a_dialog() -> None:
    sight = replace(SCREEN, drawn=DIALOG, rows=DIALOG, unfinished="")
    found = danger(sight, CLAUDE)
    assert found is not None and found.state == "prompting"
    typed = ("● Done.", RULE, "❯ esc to cancel", RULE, "  ? for shortcuts")
    assert danger(replace(sight, drawn=typed, rows=(*typed[:2], *typed[3:])), CLAUDE) is None
    asked = danger(replace(sight, drawn=AT_INPUT, rows=AT_INPUT, evidence=_hooks("prompting", 0.0)), CLAUDE)
    assert asked is not None and asked.state == "prompting"


def test_a_quoted_dialog_above_the_input_does_not_hold_back_enter() -> None:
    for draft in (("❯ hello",), ("❯ hello", "  and more")):
        drawn = (*QUOTED[:-4], RULE, *draft, RULE, "  ? for shortcuts")
        rows = tuple(row for row in drawn if row not in draft)
        sight = replace(SCREEN, drawn=drawn, rows=rows, unfinished="")
        assert danger(sight, CLAUDE, before=(*QUOTED[:-4], *BOX)) is None
        fresh = danger(sight, CLAUDE, before=BOX)
        assert fresh is not None and fresh.state == "prompting"


@pytest.mark.parametrize("agent", ["claude", "qwen"])
@pytest.mark.parametrize("what", ["long-8-rows", "long", "lines"])
def test_enter_is_pressed_after_a_text_of_any_size(agent: str, what: str) -> None:
    """Newer versions draw on the alternate screen, with the whole text in the input."""
    drawn = screen(agent, f"working-draft-pasted-{what}-newer")
    before = tuple(row for row in drawn if "rain" not in row and "line " not in row)
    sight = replace(SCREEN, drawn=drawn, rows=before, unfinished="", alternate=True)
    assert danger(sight, shipped(agent), before) is None


def test_nothing_is_typed_after_an_unsent_text() -> None:
    """An unsubmitted draft, such as a prompt restored after an Esc, is never merged."""
    verdict = _claude(("● Done.", RULE, "❯ half a line", RULE, "  ? for shortcuts"), quiet=LONG_QUIET)
    assert (verdict.state, verdict.rule, verdict.draft) == ("working", "text in the input", True)
    assert not _claude(AT_WORK).draft
