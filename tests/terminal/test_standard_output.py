"""Standard input and output that are closed, full or ASCII only: an error is one line, not a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from emulator import RELAY

from forkserver import shell_command
from support import Relay


def _run(relay: Relay, script: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", script.replace("relay ", f"{RELAY} ")],
        env={**relay.environment, "PYTHONSAFEPATH": "1", **(env or {})},
        cwd=relay.home,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "unbuffered"), [("--help", "1"), ("ps", ""), ("ps --help", ""), ("agents", "1")]
)
def test_a_full_output_is_reported(command: str, unbuffered: str, relay: Relay) -> None:
    run = _run(relay, f"relay {command} > /dev/full", {"PYTHONUNBUFFERED": unbuffered})
    assert run.stderr == b"relay: cannot write to the standard output: No space left on device.\n"
    assert run.returncode == 1


def test_a_closed_output_is_reported_only_if_there_was_output(relay: Relay) -> None:
    run = _run(relay, "relay ps >&-")
    assert run.stderr == b"relay: cannot write to the standard output: Bad file descriptor.\n"
    assert run.returncode == 1
    assert _run(relay, "relay memory export <&- >&- 2>&-").returncode == 0
    assert _run(relay, "relay no-such-command >&- 2>&-").returncode == 2


@pytest.mark.parametrize("command", ["memory save -", "memory import -", "send Bob -", "hooks test Stop"])
def test_a_closed_input_counts_as_empty(command: str, relay: Relay) -> None:
    closed, empty = (_run(relay, f"{shell_command()} {command} {source}") for source in ("<&-", "</dev/null"))
    assert (closed.returncode, closed.stdout, closed.stderr) == (empty.returncode, empty.stdout, empty.stderr)
    assert b"Traceback" not in closed.stderr


def test_a_broken_pipe_is_not_an_error(relay: Relay) -> None:
    run = _run(relay, "relay --help | true; echo ${PIPESTATUS[0]}")
    assert run.stdout in {b"141\n", b"0\n"}
    assert run.stderr == b""


def test_an_unencodable_character_is_replaced(relay: Relay) -> None:
    run = _run(relay, "relay memory save grün; relay memory list", {"PYTHONIOENCODING": "ascii"})
    assert b"gr?n" in run.stdout, run
    assert b"Traceback" not in run.stderr


def test_the_c_locale_is_taken_for_utf_8_whatever_python_would_do(relay: Relay) -> None:
    """C16: a traceback with PYTHONUTF8=0 and LC_ALL=C."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = _run(relay, "relay memory save grün; relay memory list; relay send Zoë hi", env)
    assert "grün".encode() in run.stdout, run.stderr.decode()
    assert "'Zoë' is not a valid name".encode() in run.stderr


def test_a_wrong_word_is_quoted_as_it_was_typed(relay: Relay) -> None:
    """C16: 'Zo\\xeb' is not what the user typed. What acts on a terminal is still escaped."""
    assert "'Zoë' is not a valid name" in relay("send", "Zoë", "hi", check=False).stderr
    error = relay("send", "Zo\x1b[31m\u202e\x9b", "hi", check=False).stderr
    assert r"'Zo\x1b[31m\u202e\x9b' is not a valid name" in error
