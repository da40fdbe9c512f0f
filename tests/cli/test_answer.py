"""`relay answer`: it shows the question and answers exactly that one, for the user, and logs it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from relay import data
from relay.control.sessions import call
from relay.errors import NotAllowed, UsageError
from relay.state.question import find
from session.fake_agent import events, messages, ps
from support import Relay, wait_until

FAKE = Path(__file__).parent.parent / "fakes" / "agent_menu.py"
SCREENS = data.directory("patterns") / "screens"


class Asking:
    """An agent that asks with a menu, wrapped as claude."""

    def __init__(self, relay: Relay, *options: str) -> None:
        self.relay = relay
        self.log = relay.home / "agent.log"
        command = (sys.executable, str(FAKE), *options)
        relay(
            "wrap", "-d", "-n", "Alice", "--agent", "claude", "--", *command, env={"AGENT_LOG": str(self.log)}
        )
        asks(relay)

    def answer(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.relay("answer", "Alice", *arguments, check=False)

    def question(self) -> dict[str, Any]:
        return dict(json.loads(self.answer("--json").stdout))

    @property
    def took(self) -> list[dict[str, Any]]:
        """Return what the agent was given."""
        return [json.loads(line) for line in self.log.read_text().splitlines()][1:]

    def again(self) -> None:
        """Make an agent with the option of that name ask again."""
        self.log.with_name("agent.log.again").touch()
        asks(self.relay)


@pytest.fixture(scope="module")
def asking(shared: Relay) -> Asking:
    """Yield an agent that asks and gets no answer."""
    return Asking(shared)


def asks(relay: Relay) -> None:
    wait_until(lambda: any(row["state"] == "prompting" for row in ps(relay)))


def entries(relay: Relay) -> list[dict[str, Any]]:
    return [each for each in events(relay) if each["event"] == "answer"]


def test_what_is_asked_is_shown_and_nothing_is_typed(asking: Asking) -> None:
    """R96: control characters from the agent do not act."""
    before = entries(asking.relay)
    shown = asking.answer()
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("Alice asks (permission), ")
    assert lines[2:8] == [
        "  touch made.txt",
        "  Do you want to proceed?",
        "",
        "> 1. Yes",
        "  2. Yes, and don't ask again",
        "  3. No",
    ]
    assert "\x1b" not in shown.stdout
    assert asking.took == []
    assert entries(asking.relay) == before


def test_the_choice_is_made_and_noted(relay: Relay) -> None:
    alice = Asking(relay, "again")
    choices = [
        ("1", 1, "Yes"),
        ("3", 3, "No"),
        ("yes", 1, "Yes"),
        ("NO", 3, "No"),
        ("yes, and", 2, "Yes, and don't ask again"),
        ("Type", 4, "Type something."),
    ]
    for turn, (choice, number, text) in enumerate(choices, 1):
        done = alice.answer(choice)
        assert done.returncode == 0, done
        assert "Do you want to proceed?" in done.stdout
        assert done.stdout.endswith(f"\nPressed Enter on {number}: {text.rstrip('.')}.\n")
        wait_until(lambda turn=turn: len(alice.took) == turn)
        assert alice.took[-1] == {"chose": number, "text": ""}
        entry = entries(relay)[-1]
        assert entry["asked"] == ["touch made.txt", "Do you want to proceed?"]
        assert (entry["choice"], entry["result"]) == (choice, "answered")
        assert entry["option"] == {"number": number, "text": text}
        assert entry["by"].startswith("pid ")
        alice.again()
    assert len(alice.took) == len(entries(relay)) == len(choices)
    done = alice.answer("--text", "none of both")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "Typed 'none of both' and Enter for 4: Type something.",
    )
    wait_until(lambda: len(alice.took) > len(choices))
    assert alice.took[-1] == {"chose": 4, "text": "none of both"}


def test_a_question_that_has_changed_is_not_answered(relay: Relay) -> None:
    alice = Asking(relay)
    refused = alice.answer("1", "--question", "12345678")
    assert (refused.returncode, "is now asking something else" in refused.stderr) == (2, True)
    (session,) = (relay.home / "run" / "sessions").glob("*/alice.sock")
    with pytest.raises(NotAllowed):
        call(session, {"op": "answer", "id": "12345678", "choice": "1"})
    assert alice.took == []
    (entry,) = entries(relay)
    assert entry["result"] == "refused"
    assert alice.answer("1", "--question", alice.question()["id"]).returncode == 0


def test_a_question_that_changes_meanwhile_is_not_answered(relay: Relay) -> None:
    alice = Asking(relay, "shifty")
    refused = alice.answer("3")
    assert refused.returncode == 1
    assert "is now asking something else" in refused.stderr
    assert alice.took == []


def test_a_menu_that_does_not_follow_is_not_answered(relay: Relay) -> None:
    alice = Asking(relay, "deaf")
    refused = alice.answer("3")
    assert refused.returncode == 1
    assert "does not respond" in refused.stderr
    assert alice.took == []


def test_a_question_that_stays_is_not_called_answered(relay: Relay) -> None:
    alice = Asking(relay, "stuck")
    done = alice.answer("1", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["result"], said["option"], said["typed"]) == (
        1,
        "unconfirmed",
        {"number": 1, "text": "Yes"},
        "",
    )
    again = alice.answer("1").stdout.splitlines()[-1]
    assert again == "Pressed Enter on 1: Yes. The question is still on the screen: check its terminal."


@pytest.mark.parametrize("choice", ["0", "9", "maybe", "", "y"])
def test_a_choice_that_is_none_is_refused_with_the_options(asking: Asking, choice: str) -> None:
    refused = asking.answer(choice)
    assert refused.returncode == 2
    assert "1 'Yes'" in refused.stderr
    assert asking.took == []


@pytest.mark.parametrize("text", ["", "two\nlines", "\x1b[B", "x" * 1001])
def test_a_text_that_would_act_is_refused(asking: Asking, text: str) -> None:
    assert asking.answer("--text", text).returncode == 2
    assert asking.took == []


def test_an_agent_answers_nobody(asking: Asking, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "relay", "answer", "Alice", "1"])
    hidden = f"env -u RELAY_SESSION -u RELAY_SOCKET -u RELAY_NAME {command}"
    done, said = tmp_path / "done", [tmp_path / "one", tmp_path / "two"]
    script = f"{command} > {said[0]} 2>&1; {hidden} > {said[1]} 2>&1; touch {done}; exec cat"
    before = len(_refused(asking.relay))
    asking.relay("wrap", "-d", "-n", "Mallory", "--", "sh", "-c", script)
    wait_until(done.exists)
    assert all("an agent may not" in each.read_text() for each in said)
    assert asking.took == []
    assert len(_refused(asking.relay)) == before + 2


def _refused(relay: Relay) -> list[dict[str, Any]]:
    return [each for each in events(relay) if each["event"] == "refused"]


def test_a_prompt_on_a_line_is_answered(relay: Relay) -> None:
    script = 'printf "Install? [Y/n] "; read answer; echo "got <$answer>"; exec cat'
    relay("wrap", "-d", "-n", "Alice", "--", "sh", "-c", script)
    asks(relay)
    done = relay("answer", "Alice", "yes")
    assert "1. yes\n  2. no" in done.stdout
    assert done.stdout.endswith("\nTyped 'Y' and Enter for 1: yes.\n")
    (entry,) = entries(relay)
    assert entry["result"] == "answered"
    assert entry["asked"] == ["Install? [Y/n]"]


def test_a_secret_is_not_asked_for_here(relay: Relay) -> None:
    script = 'stty -echo; printf "Password: "; read answer; exec cat'
    relay("wrap", "-d", "-n", "Alice", "--", "sh", "-c", script)
    asks(relay)
    refused = relay("answer", "Alice", "--text", "hunter2", check=False)
    assert "secret" in refused.stderr
    assert "hunter2" not in (relay.home / "state" / "events.jsonl").read_text()


def test_where_nothing_is_asked_nothing_is_answered(relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Alice", "cat")
    refused = relay("answer", "Alice", "1", check=False)
    assert (refused.returncode, "has no open question" in refused.stderr) == (1, True)


def screen(name: str) -> list[str]:
    return [
        row for row in (SCREENS / f"{name}.txt").read_text().splitlines() if not row.startswith("# title")
    ]


@pytest.mark.parametrize(
    ("name", "line", "options"),
    [
        ("claude/prompting-permission-command", "Do you want to proceed?", ["Yes", "Yes, and always", "No"]),
        ("claude/prompting-permission-60-columns", "Bash command", ["Yes", "Yes, and always", "No"]),
        ("claude/prompting-question-one", "Which colour shall it be?", ["Red", "Blue", "Type", "Chat"]),
        ("claude/prompting-question-submit", "Ready to submit your answers?", ["Submit", "Cancel"]),
        ("claude/prompting-other-trust-folder", "Security guide", ["Yes, I trust this folder", "No, exit"]),
        ("codex/prompting-permission-command", "$ touch made.txt && echo OUT", ["Yes, proceed", "Yes", "No"]),
        ("codex/prompting-question-plan-mode", "Which colour shall it be?", ["Red", "Blue", "None"]),
        ("qwen/prompting-permission-command", "Allow execution of: 'touch'?", ["Yes", "Alw", "Alw", "No"]),
        ("qwen/prompting-plan_approval-plan", "2. Test it", ["Yes, restore", "Yes", "Yes", "No"]),
        ("gemini/prompting-permission-command", "touch made.txt && echo OUT", ["Allow once", "Allow", "No"]),
        ("gemini/prompting-question-one", "Which colour shall it be?", ["Red", "Blue", "Enter"]),
        ("aider/prompting-permission-command", "touch made.txt && echo OUT", ["Yes", "No", "Don't"]),
    ],
)
def test_the_dialogs_of_real_agents(name: str, line: str, options: list[str]) -> None:
    rows = screen(name)
    asked = find(rows, rows[-1])
    assert line in asked.lines
    assert [each.number for each in asked.options] == list(range(1, len(options) + 1))
    for option, begin in zip(asked.options, options, strict=True):
        assert option.text.startswith(begin)


def test_a_scroll_bar_that_goes_away_changes_no_question() -> None:
    """Qwen 0.24.4 shows one for some seconds when the conversation is longer than the screen."""
    box = "│ Which colour? │"
    lines = ("  > begin now", box, "  Which colour?", "", "  ❯ 1. Red", "    2. Blue")
    rows = [f"{line:<20}" for line in lines]
    plain, barred, boxed = (find([row + bar for row in rows], "") for bar in ("", "█", " │█"))
    assert [plain.token, plain.options] == [barred.token, barred.options] == [boxed.token, boxed.options]
    assert len(plain.options) == 2 and "Which colour?" in plain.lines


ASKED = """
from relay import on

@on("prompting")
def asked(kind, text):
    print(kind, repr(text))
"""


def test_a_handler_reads_what_the_user_does(relay: Relay) -> None:
    """R96: the handler also gets the rows above the options, which say what is to be allowed."""
    (relay.home / "config").mkdir()
    (relay.home / "config" / "relay.config.py").write_text(ASKED)
    lines = Asking(relay).question()["lines"]
    assert len(lines) > 1
    (printed,) = wait_until(lambda: [e for e in events(relay) if e["event"] == "handler_printed"])
    assert all(repr(line)[1:-1] in printed["text"] for line in lines)


def test_an_option_that_goes_on_in_the_next_row_is_shown_whole() -> None:
    """R96: an option's end may say what it allows; a description in the same column is not part of it."""
    rows = [
        "─" * 60,
        "  Would you like to run the following command?",
        "",
        "› 1. Yes, proceed (y)",
        "  2. Yes, and don't ask again for commands that start with",
        "     `touch x.txt` (p)",
        "  3. No, and tell Codex what to do differently (esc)",
    ]
    assert find(rows, "").options[1].text.endswith("that start with `touch x.txt` (p)")
    described = ["─" * 60, "Which colour?", "❯ 1. Red", "     warm", "  2. Blue", "     cold"]
    assert [each.text for each in find(described, "").options] == ["Red", "Blue"]


CODEX, QWEN, AIDER = (
    "codex/prompting-permission-command",
    "qwen/prompting-plan_approval-plan",
    "aider/prompting-permission-command",
)


@pytest.mark.parametrize(
    ("name", "choice", "number"),
    [
        (CODEX, "y", 1),
        (CODEX, "P", 2),
        (CODEX, "esc", 3),
        (CODEX, "no", 3),
        (CODEX, "yes, p", 1),
        (QWEN, "no", 4),
        (AIDER, "y", 1),
        (AIDER, "D", 3),
        (AIDER, "don't", 3),
        (AIDER, " YES ", 1),
        ("claude/prompting-permission-command", "yes", 1),
        ("claude/prompting-permission-command", "n", 3),
        ("gemini/prompting-permission-command", "2", 2),
    ],
)
def test_an_option_is_named_as_the_dialog_shows_it(name: str, choice: str, number: int) -> None:
    rows = screen(name)
    assert find(rows, rows[-1]).choose(choice).number == number


@pytest.mark.parametrize(
    ("name", "choice", "meant"),
    [
        (CODEX, "yes", "1 'Yes, proceed (y)' or 2 \"Yes, and don"),
        (QWEN, "yes", "1 'Yes, restore"),
        (QWEN, "y", "1 'Yes, restore"),
        ("claude/prompting-permission-command", "y", "1 'Yes' or 2 'Yes, and always"),
    ],
)
def test_what_may_mean_several_is_refused_and_they_are_listed(name: str, choice: str, meant: str) -> None:
    """U10: relay never takes the first one that happens to fit."""
    with pytest.raises(UsageError, match=rf"^'{choice}' could be {re.escape(meant)}.*Use the number"):
        find(screen(name), "").choose(choice)


def test_options_with_the_same_text_are_told_apart_by_number_only() -> None:
    asked = find(["─" * 60, "Sure?", "❯ 1. Yes", "  2. Yes", "  3. No"], "")
    with pytest.raises(UsageError, match="could be 1 'Yes' or 2 'Yes'"):
        asked.choose("yes")
    assert asked.choose("2").number == 2


@pytest.mark.parametrize(
    "name", ["claude/prompting-plan_approval-written", "claude/prompting-plan_approval-narrowed"]
)
def test_a_plan_can_be_sent_back_with_a_text(name: str) -> None:
    free = find(screen(name), "").free
    assert free is not None
    assert free.number == 3


def test_what_can_be_ticked_is_left_to_its_terminal() -> None:
    with pytest.raises(UsageError, match="several choices"):
        find(screen("claude/prompting-question-many"), "").choose("1")


def test_the_mark_does_not_make_another_question() -> None:
    rows = screen("claude/prompting-permission-command")
    moved = [row.replace("❯ 1.", "  1.").replace("  3. No", "❯ 3. No") for row in rows]
    assert find(moved, "").selected == 3
    assert find(moved, "").token == find(rows, "").token
    other = [row.replace("touch made.txt", "rm -rf /") for row in rows]
    assert find(other, "").token != find(rows, "").token


def test_the_user_hears_of_it_wherever_they_look(relay: Relay) -> None:
    """R96: at once in the terminal and in `relay ps`; the agent named in the settings gets a message."""
    (relay.home / "config").mkdir(exist_ok=True)
    (relay.home / "config" / "relay.toml").write_text('escalate_to = "Lead"\n')
    relay("wrap", "-d", "-n", "Lead", "cat")
    wait_until(lambda: any(row["state"] == "ready" for row in ps(relay)))
    alice = pexpect.spawn(
        sys.executable,
        ["-m", "relay", "wrap", "-n", "Alice", "--agent", "claude", "--", sys.executable, str(FAKE)],
        env=relay.environment | {"AGENT_LOG": str(relay.home / "agent.log")},
        dimensions=(30, 100),
        timeout=60,
    )
    alice.expect_exact(b"\x1b[22;0t\x1b]2;Alice\x1b\\")
    alice.expect_exact(b"\x07\x1b]2;Alice asks: permission\x1b\\")
    (row,) = [row for row in ps(relay) if row["name"] == "Alice"]
    assert (row["state"], row["prompt"]) == ("prompting", "permission")
    wait_until(lambda: messages(relay, "--to", "Lead"))
    (sent,) = messages(relay, "--to", "Lead")
    assert "Alice waits for a decision (permission)" in sent["body"]
    assert "\n> Do you want to proceed?" in sent["body"]
    relay("answer", "Alice", "no")
    alice.expect_exact(b"\x1b]2;Alice\x1b\\")
    alice.close(force=True)
