"""`relay wrap --pipe`: redirected streams are the agent's own, byte for byte; the rest is its terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator
from test_wrap_pipes import _run

from session.fake_agent import FakeAgent, events, messages
from support import Relay, many, session_patch, wait_until

Open = Callable[..., Emulator]


@pytest.fixture
def relay(shared: Relay) -> Relay:
    """Return the module's home: no test looks at what another one started."""
    return shared


LINES = many(200_000)  # several times what a pipe holds
KINDS = "for n in 0 1 2; do [ -t $n ] && printf tty || printf pipe; done"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("relay wrap --pipe printf 'a\\nb\\r\\0\\377c' | od -An -c", "   a  \\n   b  \\r  \\0 377   c\n"),
        ("relay wrap --pipe sh -c 'echo out; echo err >&2' 2> err | cat; echo; cat err", "out\n\nerr\n"),
        (f"seq {LINES} | relay wrap --pipe cat | cmp - <(seq {LINES}) && echo same", "same\n"),
        (f"seq {LINES} > big; relay wrap --pipe cat < big > copy; cmp big copy && echo same", "same\n"),
        (f"relay wrap --pipe sh -c '{KINDS}' < /dev/null | cat", "pipepipepipe"),
        ("relay wrap --pipe yes | head -n 1; echo ${PIPESTATUS[0]}", "y\n141\n"),
        ("yes | relay wrap --pipe head -n 1; echo ${PIPESTATUS[1]}", "y\n0\n"),
        ("relay wrap --pipe sh -c 'exit 7' | cat; echo ${PIPESTATUS[0]}", "7\n"),
        ("relay wrap --pipe sh -c 'sleep 1000 & echo up' | cat", "up\n"),
        ("echo x | relay wrap --pipe sh -c 'exec <&-; echo closed' | cat", "closed\n"),
        ("relay wrap --pipe cat <&-; echo code $?", "code 0\n"),
    ],
)
def test_redirected_streams_are_the_agents_own(
    script: str, expected: str, shared: Relay, tmp_path: Path
) -> None:
    run = _run(shared, script, cwd=tmp_path)
    assert (run.stdout.decode(), run.returncode) == (expected, 0), run.stderr.decode()


def test_streams_that_are_not_redirected_are_the_agents_terminal(shell: Open) -> None:
    """So is /dev/tty; lines start at the left."""
    outer = shell()
    outer.type(f"relay wrap --pipe sh -c '{KINDS}; echo; echo err >&2; echo own > /dev/tty' | tr a-z A-Z\r")
    outer.see("TTYPIPETTY\r\n")
    outer.wait(lambda: {"err", "own", "TTYPIPETTY"} <= set(outer.lines()))


def test_the_agent_has_a_terminal_even_if_all_streams_are_redirected(shell: Open) -> None:
    outer = shell()
    outer.type("echo in | relay wrap --pipe sh -c 'cat; echo own > /dev/tty' > out 2> err; cat out err\r")
    outer.wait(lambda: outer.lines()[-3:] == ["own", "in", "shell>"])


def test_typed_lines_reach_the_agents_standard_input(shell: Open) -> None:
    outer = shell()
    outer.type("relay wrap --pipe sh -c 'echo up >&2; read line; echo got $line' | tr a-z A-Z\r")
    outer.wait(lambda: "up" in outer.lines())
    outer.type("hello\r")
    outer.wait(lambda: "GOT HELLO" in outer.lines())


def test_directives_are_read_from_standard_output_only(relay: Relay) -> None:
    bob = FakeAgent(relay, "Bob").wrap()
    commands = 'echo "@relay:Bob no" >&2; echo "@relay:Bob through the pipe"'
    run = _run(relay, f"relay wrap -n Alice --pipe sh -c '{commands}' < /dev/null 2> err | cat")
    assert run.stdout == b"@relay:Bob through the pipe\n"
    bob.receives("through the pipe")
    wait_until(lambda: [e for e in events(relay) if (e["event"], e["name"]) == ("session_end", "Alice")])
    assert [m["body"] for m in messages(relay, "--from", "Alice")] == ["through the pipe"]


def test_a_restarted_agent_may_have_pipes(relay: Relay) -> None:
    """`relay restart` starts it: its output is read only by the session."""
    patch = session_patch(
        "from relay.session.started import Started\n"
        "again = Started.again\n"
        "Started.again = lambda *args, **more: again(*args, **more) | {'pipes': [1]}\n"
    )
    cleo = FakeAgent(relay, "Cleo").wrap()
    script = '[ -t 1 ] && kind=terminal || kind=pipe; echo "@relay:Cleo I have a $kind"; exec cat'
    relay("wrap", "-d", "-n", "Dora", "sh", "-c", script, env=patch)
    cleo.receives("I have a terminal")
    relay("restart", "Dora")
    cleo.receives("I have a pipe")
    relay("stop", "Dora")
