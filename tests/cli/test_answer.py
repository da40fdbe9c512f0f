"""`relay answer`: it shows an agent's question, answers exactly that one for the user, and logs it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relay import data
from relay.agents import catalog
from relay.control.sessions import call
from relay.errors import NotAllowed, UsageError
from relay.home import Home
from relay.state import question
from session.fake_agent import events, messages, ps
from support import Relay, wait_until
from terminal.emulator import Emulator

pytestmark = pytest.mark.own_team

FREE = "Type something."
FAKE = Path(__file__).parent.parent / "fakes" / "agent_menu.py"
SCREENS = data.directory("patterns") / "screens"
NOWHERE = Home(Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"))


class AskingAgent:
    """An agent that asks with a menu, wrapped as `kind`."""

    def __init__(self, relay: Relay, *options: str, name: str = "Alice", kind: str = "claude") -> None:
        self.relay = relay
        self.name = name
        self.log = relay.home / f"{name}.log"
        command = (sys.executable, "-S", str(FAKE), *options)
        relay("wrap", "-d", "-n", name, "--agent", kind, "--", *command, env={"AGENT_LOG": str(self.log)})
        wait_for_question(relay, name)

    def answer(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.relay("answer", self.name, *arguments, check=False)

    def question(self) -> dict[str, Any]:
        return dict(json.loads(self.answer("--json").stdout))

    @property
    def received(self) -> list[dict[str, Any]]:
        """Return what the agent received."""
        return [json.loads(line) for line in self.log.read_text().splitlines()][1:]

    def ask_again(self) -> None:
        """Make an agent that was started with the option `again` ask again."""
        self.log.with_name(f"{self.log.name}.again").touch()
        wait_for_question(self.relay, self.name)


@pytest.fixture(scope="module")
def asking(shared: Relay) -> AskingAgent:
    """Return an agent that asks and is never answered."""
    return AskingAgent(shared)


def wait_for_question(relay: Relay, name: str) -> None:
    wait_until(lambda: any((row["name"], row["state"]) == (name, "prompting") for row in ps(relay)))


def entries(relay: Relay, name: str) -> list[dict[str, Any]]:
    return [each for each in events(relay) if (each["event"], each["name"]) == ("answer", name)]


def test_an_answer_is_not_taken_for_the_same_question_asked_again(relay: Relay) -> None:
    agent = AskingAgent(relay, "again")
    first, takes_text = (agent.question()[key] for key in ("id", "text"))
    assert takes_text  # by its last option
    assert agent.answer("1", "--question", first).returncode == 0
    agent.ask_again()
    again = agent.answer("1", "--question", first)
    assert (again.returncode, "is now asking something else" in again.stderr) == (2, True)
    assert [each["chose"] for each in agent.received] == [1]
    assert agent.answer("2", "--question", agent.question()["id"]).returncode == 0


def test_without_a_choice_the_question_is_shown_and_nothing_is_typed(asking: AskingAgent) -> None:
    """R96: without the agent's control characters."""
    before = entries(asking.relay, "Alice")
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
    assert asking.received == []
    assert entries(asking.relay, "Alice") == before


def test_a_choice_is_made_and_logged(shared: Relay) -> None:
    bea = AskingAgent(shared, "again", name="Bea")
    choices = [
        ("1", 1, "Yes"),
        ("3", 3, "No"),
        ("yes", 1, "Yes"),
        ("NO", 3, "No"),
        ("yes, and", 2, "Yes, and don't ask again"),
        ("Type", 4, FREE),
    ]
    for turn, (choice, number, text) in enumerate(choices, 1):
        done = bea.answer(choice)
        assert done.returncode == 0, done
        assert "Do you want to proceed?" in done.stdout
        assert done.stdout.endswith(f"\nPressed Enter on {number}: {text.rstrip('.')}.\n")
        wait_until(lambda turn=turn: len(bea.received) == turn)
        assert bea.received[-1] == {"chose": number, "text": ""}
        entry = entries(shared, "Bea")[-1]
        assert entry["asked"] == ["touch made.txt", "Do you want to proceed?"]
        assert (entry["choice"], entry["result"]) == (choice, "answered")
        assert entry["option"] == {"number": number, "text": text}
        assert entry["by"].startswith("pid ")
        bea.ask_again()
    assert len(bea.received) == len(entries(shared, "Bea")) == len(choices)
    done = bea.answer("--text", "none of both")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "Typed 'none of both' and Enter for 4: Type something.",
    )
    wait_until(lambda: len(bea.received) > len(choices))
    assert bea.received[-1] == {"chose": 4, "text": "none of both"}


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [("copilot", "form"), ("opencode", "lit"), ("opencode", "buttons")],
    ids=lambda each: each,
)
def test_a_choice_from_a_menu_without_numbers_or_marks_is_made(shared: Relay, kind: str, drawn: str) -> None:
    """The mark is at the option when Enter is pressed, whatever shows it: a column, or only a colour."""
    agent = AskingAgent(shared, drawn, "again", name=f"N{drawn}", kind=kind)
    asked = agent.question()
    assert "touch made.txt" in " ".join(asked["lines"])
    assert not any("Build" in line or "select" in line for line in asked["lines"])
    assert [each["text"] for each in asked["options"]] == ["Yes", "Yes, and don't ask again", "No", FREE]
    for turn, choice in enumerate(["3", "1", "no", "yes, and"], 1):
        done = agent.answer(choice)
        assert done.returncode == 0, done
        wait_until(lambda turn=turn: len(agent.received) == turn)  # type: ignore[misc]
        agent.ask_again()
    assert [each["chose"] for each in agent.received] == [3, 1, 3, 2]


@pytest.mark.parametrize(
    ("kind", "drawn"), [("copilot", "form"), ("opencode", "buttons")], ids=lambda each: each
)
def test_such_a_menu_is_not_answered_if_it_changes_or_ignores_the_keys(
    shared: Relay, kind: str, drawn: str
) -> None:
    for habit, why in (("shifty", "is now asking something else"), ("deaf", "does not respond")):
        agent = AskingAgent(shared, drawn, habit, name=f"{drawn}{habit}", kind=kind)
        refused = agent.answer("3")
        assert (refused.returncode, why in refused.stderr) == (1, True)
        assert agent.received == []


def test_a_question_that_has_changed_is_not_answered(shared: Relay) -> None:
    cleo = AskingAgent(shared, name="Cleo")
    refused = cleo.answer("1", "--question", "12345678")
    assert (refused.returncode, "is now asking something else" in refused.stderr) == (2, True)
    (session,) = (shared.home / "run" / "sessions").glob("*/cleo.sock")
    with pytest.raises(NotAllowed):
        call(session, {"op": "answer", "id": "12345678", "choice": "1"})
    assert cleo.received == []
    (entry,) = entries(shared, "Cleo")
    assert entry["result"] == "refused"
    assert cleo.answer("1", "--question", cleo.question()["id"]).returncode == 0


def test_a_question_that_changes_mid_answer_is_not_answered(shared: Relay) -> None:
    dora = AskingAgent(shared, "shifty", name="Dora")
    refused = dora.answer("3")
    assert refused.returncode == 1
    assert "is now asking something else" in refused.stderr
    assert dora.received == []


def test_a_menu_that_ignores_the_arrow_keys_is_not_answered(shared: Relay) -> None:
    eve = AskingAgent(shared, "deaf", name="Eve")
    refused = eve.answer("3")
    assert refused.returncode == 1
    assert "does not respond" in refused.stderr
    assert eve.received == []


def test_a_question_that_stays_on_the_screen_is_reported_as_unconfirmed(shared: Relay) -> None:
    fay = AskingAgent(shared, "stuck", name="Fay")
    done = fay.answer("1", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["result"], result["option"], result["typed"]) == (
        1,
        "unconfirmed",
        {"number": 1, "text": "Yes"},
        "",
    )
    again = fay.answer("1").stdout.splitlines()[-1]
    assert again == "Pressed Enter on 1: Yes. The question is still on the screen: check its terminal."


@pytest.mark.parametrize("choice", ["0", "9", "maybe", "", "y"])
def test_an_invalid_choice_is_refused_with_a_list_of_the_options(asking: AskingAgent, choice: str) -> None:
    refused = asking.answer(choice)
    assert refused.returncode == 2
    assert "1 'Yes'" in refused.stderr
    assert asking.received == []


@pytest.mark.parametrize("text", ["", "two\nlines", "\x1b[B", "x" * 1001])
def test_an_unsafe_text_is_refused(asking: AskingAgent, text: str) -> None:
    assert asking.answer("--text", text).returncode == 2
    assert asking.received == []


def test_an_agent_may_not_answer_another(asking: AskingAgent, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "relay", "answer", "Alice", "1"])
    hidden = f"env -u RELAY_SESSION -u RELAY_SOCKET -u RELAY_NAME {command}"
    done, outputs = tmp_path / "done", [tmp_path / "one", tmp_path / "two"]
    script = f"{command} > {outputs[0]} 2>&1; {hidden} > {outputs[1]} 2>&1; touch {done}; exec cat"
    before = len(_refused(asking.relay))
    asking.relay("wrap", "-d", "-n", "Mallory", "--", "sh", "-c", script)
    wait_until(done.exists)
    assert all("an agent may not" in each.read_text() for each in outputs)
    assert asking.received == []
    assert len(_refused(asking.relay)) == before + 2


def _refused(relay: Relay) -> list[dict[str, Any]]:
    return [each for each in events(relay) if each["event"] == "refused"]


def test_a_one_line_prompt_is_answered(shared: Relay) -> None:
    script = 'printf "Install? [Y/n] "; read answer; echo "got <$answer>"; exec cat'
    shared("wrap", "-d", "-n", "Gus", "--", "sh", "-c", script)
    wait_for_question(shared, "Gus")
    done = shared("answer", "Gus", "yes")
    assert "1. yes\n  2. no" in done.stdout
    assert done.stdout.endswith("\nTyped 'Y' and Enter for 1: yes.\n")
    (entry,) = entries(shared, "Gus")
    assert entry["result"] == "answered"
    assert entry["asked"] == ["Install? [Y/n]"]


def test_a_password_prompt_is_left_to_its_terminal(shared: Relay) -> None:
    script = 'stty -echo; printf "Password: "; read answer; exec cat'
    shared("wrap", "-d", "-n", "Hal", "--", "sh", "-c", script)
    wait_for_question(shared, "Hal")
    refused = shared("answer", "Hal", "--text", "hunter2", check=False)
    assert "secret" in refused.stderr
    assert "hunter2" not in (shared.home / "state" / "events.jsonl").read_text()


def test_without_an_open_question_there_is_nothing_to_answer(shared: Relay) -> None:
    shared("wrap", "-d", "-n", "Ida", "cat")
    refused = shared("answer", "Ida", "1", check=False)
    assert (refused.returncode, "has no open question" in refused.stderr) == (1, True)


def find(rows: list[str], unfinished: str = "", kind: str = "claude") -> question.ScreenQuestion:
    return question.find(rows, unfinished, catalog.load(kind, NOWHERE))


def find_on(name: str) -> question.ScreenQuestion:
    """Return the question on a recorded screen, such as "claude/ready"."""
    rows = screen(name)
    return find(rows, rows[-1], name.partition("/")[0])


def screen(name: str) -> list[str]:
    return [
        row for row in (SCREENS / f"{name}.txt").read_text().splitlines() if not row.startswith("# title")
    ]


DIALOGS = [
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
    ("copilot/prompting-question-one", "Which colour?", ["Red", "Blue", "Other"]),
]


def test_dialogs_of_real_agents_are_parsed(subtests: pytest.Subtests) -> None:
    for name, line, options in DIALOGS:
        with subtests.test(name):
            asked = find_on(name)
            assert line in asked.lines
            assert [each.number for each in asked.options] == list(range(1, len(options) + 1))
            for option, start in zip(asked.options, options, strict=True):
                assert option.text.startswith(start)


def test_a_scroll_bar_is_not_part_of_the_question() -> None:
    """Qwen 0.24.4 shows one for a few seconds when the conversation is longer than the screen."""
    box = "│ Which colour? │"
    lines = ("  > begin now", box, "  Which colour?", "", "  ❯ 1. Red", "    2. Blue")
    rows = [f"{line:<20}" for line in lines]
    plain, barred, boxed = (find([row + bar for row in rows], kind="qwen") for bar in ("", "█", " │█"))
    assert [plain.token, plain.options] == [barred.token, barred.options] == [boxed.token, boxed.options]
    assert len(plain.options) == 2 and "Which colour?" in plain.lines


HANDLER = """
from relay import on

@on("prompting")
def asked(kind, text):
    print(kind, repr(text))
"""


def test_a_handler_reads_the_same_question_as_the_user(relay: Relay) -> None:
    """R96: the handler also gets the rows above the options, which show what would be allowed."""
    (relay.home / "config").mkdir()
    (relay.home / "config" / "relay.config.py").write_text(HANDLER)
    lines = AskingAgent(relay).question()["lines"]
    assert len(lines) > 1
    (printed,) = wait_until(lambda: [e for e in events(relay) if e["event"] == "handler_printed"])
    assert all(repr(line)[1:-1] in printed["text"] for line in lines)


def test_an_option_that_continues_on_the_next_row_is_shown_whole() -> None:
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
    assert find(rows, kind="codex").options[1].text.endswith("that start with `touch x.txt` (p)")
    described = ["─" * 60, "Which colour?", "❯ 1. Red", "     warm", "  2. Blue", "     cold"]
    assert [each.text for each in find(described).options] == ["Red", "Blue"]


def test_copilots_refusal_takes_a_text() -> None:
    """Enter alone has no effect there."""
    refusal = "No, and tell Copilot what to do differently (Esc to stop)"
    free = find(["Do you want to run this command?", "❯ 1. Yes", f"  2. {refusal}"], kind="copilot").free
    assert free is not None and free.number == 2


CODEX, QWEN, AIDER = (
    "codex/prompting-permission-command",
    "qwen/prompting-plan_approval-plan",
    "aider/prompting-permission-command",
)


CHOICES = [
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
]


def test_an_option_can_be_named_as_the_dialog_shows_it(subtests: pytest.Subtests) -> None:
    for name, choice, number in CHOICES:
        with subtests.test(f"{name} {choice!r}"):
            assert find_on(name).choose(choice).number == number


@pytest.mark.parametrize(
    ("name", "choice", "candidates"),
    [
        (CODEX, "yes", "1 'Yes, proceed (y)' or 2 \"Yes, and don"),
        (QWEN, "yes", "1 'Yes, restore"),
        (QWEN, "y", "1 'Yes, restore"),
        ("claude/prompting-permission-command", "y", "1 'Yes' or 2 'Yes, and always"),
    ],
)
def test_an_ambiguous_choice_is_refused_with_a_list_of_the_candidates(
    name: str, choice: str, candidates: str
) -> None:
    """U10: relay never simply takes the first match."""
    with pytest.raises(UsageError, match=rf"^'{choice}' could be {re.escape(candidates)}.*Use the number"):
        find_on(name).choose(choice)


def test_options_with_the_same_text_are_chosen_by_number() -> None:
    asked = find(["─" * 60, "Sure?", "❯ 1. Yes", "  2. Yes", "  3. No"])
    with pytest.raises(UsageError, match="could be 1 'Yes' or 2 'Yes'"):
        asked.choose("yes")
    assert asked.choose("2").number == 2


def test_the_option_that_takes_a_text_is_known_by_the_agents_words(subtests: pytest.Subtests) -> None:
    claude = ("plan_approval-written", "plan_approval-narrowed", "question-one")
    others = [f"{kind}/prompting-question-one" for kind in ("copilot", "gemini", "qwen")]
    for name in (CODEX, *(f"claude/prompting-{each}" for each in claude), *others):
        with subtests.test(name):
            free = find_on(name).free
            assert free is not None
            assert free.number == 3
    assert find(screen("gemini/prompting-question-one")).free is None


def test_a_list_of_which_several_can_be_chosen_is_no_menu() -> None:
    """Nor is what is quoted above it."""
    rows = ["❯ 1. Quoted", "  2. Menu", "", "Which colours?", "  1. Red", "  2. Blue", ""]
    for keys, options in (("toggle", 0), ("submit", 2)):
        below = f"↑↓ select  enter {keys}  esc dismiss"
        found = question.find(
            [*rows, below],
            below,
            catalog.load("opencode", NOWHERE),
            lambda x, y: 1 if (x, y) == (2, 4) else 0,
        )
        assert len(found.options) == options


def test_a_dialog_with_check_boxes_is_left_to_its_terminal() -> None:
    with pytest.raises(UsageError, match="several choices"):
        find_on("claude/prompting-question-many").choose("1")


def test_moving_the_selection_does_not_change_the_question() -> None:
    rows = screen("claude/prompting-permission-command")
    moved = [row.replace("❯ 1.", "  1.").replace("  3. No", "❯ 3. No") for row in rows]
    assert find(moved).selected == 3
    assert find(moved).token == find(rows).token
    other = [row.replace("touch made.txt", "rm -rf /") for row in rows]
    assert find(other).token != find(rows).token


@pytest.mark.own_home
def test_a_question_is_reported_in_the_terminal_in_ps_and_by_message(relay: Relay) -> None:
    """R96: at once in the terminal and in `relay ps`; the agent named in the settings gets a message."""
    (relay.home / "config").mkdir(exist_ok=True)
    (relay.home / "config" / "relay.toml").write_text('escalate_to = "Lead"\n')
    relay("wrap", "-d", "-n", "Lead", "cat")
    wait_until(lambda: any(row["state"] == "ready" for row in ps(relay)))
    alice = Emulator(
        [*relay.command, "wrap", "-n", "Alice", "--agent", "claude", "--", sys.executable, str(FAKE)],
        relay.environment | {"AGENT_LOG": str(relay.home / "agent.log")},
    )
    named = alice.see(b"\x1b[22;0t\x1b]2;Alice\x1b\\")
    asked = alice.see(b"\x07\x1b]2;Alice asks: permission\x1b\\", after=named)
    (row,) = [row for row in ps(relay) if row["name"] == "Alice"]
    assert (row["state"], row["prompt"]) == ("prompting", "permission")
    wait_until(lambda: messages(relay, "--to", "Lead"))
    (sent,) = messages(relay, "--to", "Lead")
    assert "Alice waits for a decision (permission)" in sent["body"]
    assert "\n> Do you want to proceed?" in sent["body"]
    relay("answer", "Alice", "no")
    alice.see(b"\x1b]2;Alice\x1b\\", after=asked)
    alice.close()
