"""The command line that resumes a conversation: what it contains, what it omits, and what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents import catalog
from relay.agents.conversation import Conversation
from relay.agents.profile import AgentOption
from relay.agents.resume import named_in, resume_command
from relay.home import Home

ID = "0f5bd5cd-1c9d-4f02-9a0e-0123456789ab"
NOWHERE = Path("/nowhere")
PROFILES = {profile.name: profile for profile in catalog.profiles(Home(NOWHERE, NOWHERE, NOWHERE))}
AGENTS = ("claude", "codex", "copilot", "gemini", "opencode", "pi", "qwen")


def resumed(command: str, agent: str = "") -> str | None:
    """Return the command line; agent: a declared profile, by default the program's own."""
    words = shlex.split(command)
    profile = PROFILES[agent] if agent else catalog.for_command(words, Home(NOWHERE, NOWHERE, NOWHERE))
    found = resume_command(profile, words, Conversation(profile.name, ID, NOWHERE))
    return None if found is None else shlex.join(found).replace(ID, "ID")


RESUMED = [
    ("claude", "claude --resume ID"),
    ("claude 'fix the tests'", "claude --resume ID"),
    ("claude --model opus 'fix the tests'", "claude --resume ID --model opus"),
    ("claude --model=opus -- 'fix the tests'", "claude --resume ID --model=opus"),
    ("claude --dangerously-skip-permissions fix", "claude --resume ID --dangerously-skip-permissions"),
    ("claude -c", "claude --resume ID"),
    ("claude --resume", "claude --resume ID"),
    ("claude -r OLD --fork-session", "claude --resume ID"),
    ("claude --resume=OLD --verbose", "claude --resume ID --verbose"),
    ("claude --session-id OLD fix", "claude --resume ID"),
    ("claude --tools Bash Edit --add-dir a b", "claude --resume ID --tools Bash Edit --add-dir a b"),
    ("claude --system-prompt '- be brief' fix", "claude --resume ID --system-prompt '- be brief'"),
    ("claude --debug --model opus", "claude --resume ID --debug --model opus"),
    ("claude --debug api fix", "claude --resume ID --debug api"),
    ("claude -cn Lead", "claude --resume ID -n Lead"),
    ("claude --unheard-of", "claude --resume ID --unheard-of"),
    ("claude --unheard-of=x fix", "claude --resume ID --unheard-of=x"),
    ("codex", "codex resume ID"),
    ("codex -m x --no-daemon 'fix it'", "codex resume ID -m x --no-daemon"),
    ("codex -mx -c a.b=1 -i a.png b.png -- fix", "codex resume ID -mx -c a.b=1"),
    ("codex -c a=1 resume OLD 'go on'", "codex resume ID -c a=1"),
    ("codex resume --last -C /folder", "codex resume ID -C /folder"),
    ("codex fork OLD", "codex resume ID"),
    ("copilot", "copilot --resume=ID"),
    ("copilot --model x -i 'fix it'", "copilot --resume=ID --model x"),
    ("copilot --resume OLD --allow-tool a b", "copilot --resume=ID --allow-tool a b"),
    ("gemini -m flash 'fix it'", "gemini --resume ID -m flash"),
    ("gemini --session-id OLD -i fix -y", "gemini --resume ID -y"),
    ("gemini --allowed-tools Bash fix", "gemini --resume ID --allowed-tools Bash"),
    ("qwen -y -i 'fix it'", "qwen --resume ID -y"),
    ("qwen --allowed-tools a b c", "qwen --resume ID --allowed-tools a b c"),
    ("opencode", "opencode --session ID"),
    ("opencode /folder --prompt fix -m a/b", "opencode --session ID /folder -m a/b"),
    ("opencode -s OLD --fork", "opencode --session ID"),
    ("pi --provider mock @notes.md 'fix it' 'and test it'", "pi --session ID --provider mock"),
    ("pi -nt --session OLD", "pi --session ID -nt"),
]  # fmt: skip


def test_the_command_resumes_the_conversation_without_its_first_prompt(subtests: pytest.Subtests) -> None:
    for command, expected in RESUMED:
        with subtests.test(command):
            assert resumed(command) == expected


REFUSED = [
    *("claude -p fix", "claude --print", "claude -cp fix", "claude --output-format json -p fix"),
    *("claude mcp list", "claude --verbose update", "claude --bg fix", "claude --worktree x"),
    *("codex exec fix", "codex -m x e fix", "codex review", "codex --worktree"),
    *("copilot -p fix", "copilot login", "copilot --acp"),
    *("gemini -p fix", "gemini mcp list", "gemini --acp", "gemini --worktree"),
    *("qwen fix", "qwen -p fix", "qwen -- fix", "qwen --no-chat-recording"),
    *("opencode run fix", "opencode serve", "pi -p fix", "pi --no-session", "pi install x"),
]


def test_a_command_without_a_conversation_is_refused(subtests: pytest.Subtests) -> None:
    for command in REFUSED:
        with subtests.test(command):
            assert resumed(command) is None


@pytest.mark.parametrize("command", ["aider", "bash", "python3", "cat", "env", "env A=1", ""])
def test_a_program_that_cannot_resume_is_refused(command: str) -> None:
    assert resumed(command) is None


def test_a_command_with_an_ambiguous_word_is_refused() -> None:
    assert resumed("claude --unheard-of fix") is None
    assert resumed("claude -Z fix") is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("env A=1 nice -n 10 claude fix", "env A=1 nice -n 10 claude --resume ID"),
        ("sudo -E /opt/bin/claude -c", "sudo -E /opt/bin/claude --resume ID"),
        ("npx -y claude fix", "npx -y claude --resume ID"),
    ],
)
def test_launchers_stay_in_front_of_the_agent(command: str, expected: str) -> None:
    assert resumed(command) == expected


def test_a_script_declared_as_an_agent_gets_the_id_last() -> None:
    """The script gets hooks' flags last, too; its own arguments cannot be distinguished from the agent's."""
    assert resumed("./claude.sh", "claude") == "./claude.sh --resume ID"
    assert resumed("./claude.sh -c --model opus", "claude") == "./claude.sh --model opus --resume ID"
    assert resumed("npx @anthropic-ai/claude-code --verbose", "claude") == (
        "npx @anthropic-ai/claude-code --verbose --resume ID"
    )
    assert resumed("./claude.sh staging", "claude") is None
    assert resumed("./claude.sh -- fix", "claude") is None


def test_the_id_is_found_in_a_command_that_resumes() -> None:
    for agent in AGENTS:
        command = shlex.split(str(resumed(agent)).replace("ID", ID))
        assert named_in(PROFILES[agent], ["nice", *command]) == ID
        assert named_in(PROFILES[agent], [agent, "--verbose"]) == ""
    assert named_in(PROFILES["claude"], ["claude", "--resume"]) == ""
    assert named_in(PROFILES["claude"], ["claude", "--resume", "--verbose"]) == ""
    assert named_in(PROFILES["aider"], ["aider"]) == ""


@pytest.mark.parametrize("agent", AGENTS)
def test_no_option_is_listed_twice(agent: str) -> None:
    resume = PROFILES[agent].resume
    names = [option.name for option in (*resume.keep, *resume.drop, *resume.refuse)]
    assert len(names) == len(set(names)) > 20


def option_words(option: AgentOption) -> st.SearchStrategy[list[str]]:
    """Draw an option as a user may write it, with values that no prompt has."""
    values = {"none": (0, 0), "one": (1, 1), "optional": (0, 1), "several": (0, 3)}
    least, most = values[option.takes]
    return st.lists(st.just("value"), min_size=least, max_size=most).map(lambda each: [option.name, *each])


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw an agent, and arguments with options that are kept or dropped; prompts come last."""
    agent = draw(st.sampled_from(AGENTS))
    resume = PROFILES[agent].resume
    options = [each for each in (*resume.keep, *resume.drop) if each.name.startswith("-")]
    chosen = draw(st.lists(st.sampled_from(options), max_size=8))
    words = [word for option in chosen for word in draw(option_words(option))]
    prompts = [] if resume.positional == "once" else draw(st.lists(st.just("a prompt"), max_size=2))
    greedy = chosen and chosen[-1].takes in {"optional", "several"}
    if prompts and (greedy or agent == "opencode" or draw(st.booleans())):
        prompts = ["--", *prompts]
    return agent, [agent, *words, *prompts]


@given(commands())
def test_resuming_again_changes_nothing(command: tuple[str, list[str]]) -> None:
    agent, words = command
    profile, conversation = PROFILES[agent], Conversation(agent, ID, NOWHERE)
    once = resume_command(profile, words, conversation)
    assert once is not None
    assert resume_command(profile, once, conversation) == once
    assert named_in(profile, once) == ID


@given(commands())
def test_kept_options_keep_their_order_and_prompts_are_dropped(command: tuple[str, list[str]]) -> None:
    agent, words = command
    resume = PROFILES[agent].resume
    found = resume_command(PROFILES[agent], words, Conversation(agent, ID, NOWHERE))
    assert found is not None
    start = 1 + len(resume.words)
    assert found[1:start] == [word.replace("{id}", ID) for word in resume.words]
    rest = iter(words[1:])
    assert all(word in rest for word in found[start:]), "in their original order"
    assert {option.name for option in resume.drop}.isdisjoint(found[start:])
    assert {option.name for option in resume.keep} & {*words} <= {*found}
    if resume.positional == "prompt":
        assert "a prompt" not in found


@given(
    st.sampled_from(AGENTS),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=6),
)
def test_any_words_are_accepted_or_refused(agent: str, words: list[str]) -> None:
    found = resume_command(PROFILES[agent], [agent, *words], Conversation(agent, ID, NOWHERE))
    resuming = {word.replace("{id}", ID) for word in PROFILES[agent].resume.words}
    assert found is None or {*found} <= {agent, *words, *resuming, *clusters(words)}


def clusters(words: list[str]) -> set[str]:
    """Return the option clusters that one word may stand for: -cp is -c -p."""
    return {f"-{word[place:]}" for word in words for place in range(1, len(word))} | {
        f"-{letter}" for word in words for letter in word
    }
