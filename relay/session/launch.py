"""Starting a session: from the parsed command line to a running agent, in as few steps as possible.

    relay wrap ──fork──→ session process ──fork──→ agent
        │                      └─ afterwards loads everything else (asyncio, the broker's client, ...)
        └─ the terminal client, waiting on a socket pair

All that can be wrong with what the person wrote is found before the first fork.  This module is on the
path to the agent's first byte: it imports little.
"""

from __future__ import annotations

import os
import signal
import sys
from _socket import socketpair  # `socket`, which wraps it, costs 2 ms

from relay.control.name_claim import Claim, claim, claim_free
from relay.errors import RelayError, UsageError
from relay.home import Home
from relay.names import DEFAULT_TEAM, key
from relay.session.options import Options
from relay.terminal.client import FORWARDED, HANDLED, Client, TerminalMode
from relay.terminal.forward import Forwarder
from relay.terminal.lend import Lent
from relay.terminal.pty import COLUMNS, ROWS, Pty, get_size, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping

BRIDGED = ("claude", "codex", "gemini", "qwen")
"""TranscriptReader in the names of programs whose profiles have native hooks; only they wait for profiles to load."""


def wrap(options: Options, env: Mapping[str, str] | None = None) -> int:
    """Run the agent and be its terminal; the exit code for the shell. Raises RelayError before it starts."""
    env = dict(os.environ if env is None else env)
    if inside := env.get("RELAY_SESSION"):
        raise UsageError(
            f"this terminal is already inside a relay session ({env.get('RELAY_NAME', inside)}): its agent's "
            "words would be read twice. Start this one from a terminal outside of it."
        )
    if not options.command:
        raise UsageError("there is no command to run. Try `relay wrap bash`.")
    path = resolve(options.command[0], env)
    if options.broker:
        from relay.transport.endpoint import Endpoint  # for those who name one

        Endpoint.of(options.broker)
    _fill_standard()
    home = Home.from_env(env).ensure()
    team = options.team or env.get("RELAY_TEAM") or DEFAULT_TEAM
    command = options.command[0]
    claimed = claim(home, team, options.name) if options.name else claim_free(home, team, command)
    mode = TerminalMode(0, 1)
    channel, theirs = socketpair()
    # From here until somebody handles them: a signal would leave a raw terminal, or an agent without one.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    # The modes change before the agent can draw: what it draws must not pass a cooked terminal.
    if not options.detached and mode.in_foreground():
        mode.lend()
    try:
        child = os.fork()
    except OSError as error:
        mode.restore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        raise RelayError(f"cannot start a process: {error.strerror}. Try again later.") from None
    if child == 0:
        channel.close()
        _be_session(options, env, home, claimed, path, mode, theirs)
    theirs.close()
    os.close(claimed.fd)
    return Client(channel, mode).run()


def _be_session(
    options: Options,
    env: dict[str, str],
    home: Home,
    claimed: Claim,
    path: str,
    mode: TerminalMode,
    channel: _socket.socket,
) -> None:
    """In the session process: start the agent, then everything else. Never returns."""
    code = 1
    try:
        foreground = mode.in_foreground()
        os.setsid()
        own = {0, 1, 2, claimed.fd, channel.fileno()}
        if options.detached:
            _close_others(own)
        session_id = os.urandom(8).hex()
        env.update(
            RELAY_NAME=claimed.name,
            RELAY_TEAM=claimed.team,
            RELAY_SESSION=session_id,
            RELAY_SOCKET=claimed.socket,
        )
        _add_relay(env)
        command, env, bridge, note = _bridge(options, env, home, claimed)
        claimed.note(os.getpid())  # who the agent's first act descends from, until its own id is known
        size = None if options.detached else get_size(1) or get_size(0) or get_size(2)
        columns, rows, width, height = size or (COLUMNS, ROWS, 0, 0)
        piped = not (options.detached or mode.interactive)
        try:
            pty = Pty.spawn(
                path,
                command,
                env,
                size=(columns, rows),
                pixels=(width, height),
                # Of a background job's terminal the modes are another's, a shell's in most cases.
                attributes=None if options.detached or not foreground else mode.saved,
                # What comes from a pipe was typed by nobody, and what comes from a terminal that does not
                # show the agent's output is echoed by that terminal.
                echo=not piped,
                # What goes into a file or a pipe is what the agent wrote, byte for byte.
                line_feeds_return=options.detached or os.isatty(1),
            )
        except RelayError as error:
            _remove_bridge(bridge, home, claimed)
            _tell_end(channel, str(error), error.exit_code)
            os._exit(error.exit_code)
        claimed.note(pty.pid)
        # Ignored only now: an ignored signal would have stayed ignored in the agent.  What the caller's
        # process group was sent before we left it is forgotten so: the client passes it on.
        for number in (*FORWARDED, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        # SIGTERM stays blocked until the session can obey it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED - {signal.SIGTERM})
        _close_others({*own, pty.master})
        forwarder = Forwarder(pty)
        if not options.detached:
            forwarder.lend(Lent(0, 1, interactive=mode.interactive, saved=mode.saved))
            forwarder.pause(not foreground)
        forwarder.start()
        _leave_terminal(home)

        # The rest: about 100 ms, while the agent runs.
        import socket

        from relay.session.session import main
        from relay.session.started import Started

        channel = socket.socket(fileno=channel.detach())
        started = Started(
            options,
            env,
            home,
            claimed,
            session_id,
            pty,
            forwarder,
            size=(columns, rows),
            piped=piped,
            bridge=bridge,
            bridge_note=note,
            bridge_dir=_bridge_dir(home, claimed) if bridge else "",
        )
        code = main(started, channel)
    except BaseException:  # noqa: BLE001 - a fault of ours; a forked process must not return
        import traceback

        text = traceback.format_exc()
        sys.stderr.write(text)
        sys.stderr.flush()
        _tell_end(channel, "the session failed to start; its log is in the state directory.", 70)
    finally:
        os._exit(code)


def _add_relay(env: dict[str, str]) -> None:
    """Have the agent's own shell find `relay`, behind everything that it finds already."""
    folder = os.path.dirname(sys.executable)  # where a virtual environment has its commands
    try:
        resolve("relay", env)
    except RelayError:
        if os.access(os.path.join(folder, "relay"), os.X_OK):
            env["PATH"] = os.pathsep.join((env.get("PATH") or os.defpath, folder))


def _bridge(
    options: Options, env: dict[str, str], home: Home, claimed: Claim
) -> tuple[list[str], dict[str, str], str, str]:
    """The command and environment with the bridge to the agent's own hooks, the agent's kind, a note.

    Whatever goes wrong here, the agent is started.
    """
    command = options.command
    if not (
        options.profile
        or any(name in os.path.basename(word) for word in command for name in BRIDGED)
        or os.path.isdir(os.path.join(home.config_dir, "patterns"))
    ):
        return command, env, "", ""
    try:
        from relay.agents import hook_setup

        directory = _bridge_dir(home, claimed)
        done = hook_setup.bridge(options.profile, command, env, home, directory, claimed.socket)
    except Exception as error:  # noqa: BLE001 - a fault of ours, logged, which the session tells
        _log_fault(home)
        return command, env, "", f"setting it up failed ({type(error).__name__}: {error})"
    return done.command, done.env, done.kind, done.note


def _log_fault(home: Home) -> None:
    """Write the traceback of the exception at hand into the session's log, which is not open yet."""
    import traceback

    try:
        with open(os.path.join(home.state_dir, "session.log"), "a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
    except OSError:
        pass  # the person is told all the same


def _bridge_dir(home: Home, claimed: Claim) -> str:
    """A place for the files of one run. Not beside the sockets: agents distrust what lies below /tmp.

    The next session of the name takes the same one, and so clears up after one that was killed.
    """
    return os.path.join(home.state_dir, "native", f"{key(claimed.name)}@{key(claimed.team)}")


def _remove_bridge(kind: str, home: Home, claimed: Claim) -> None:
    if kind:
        from relay.agents.hook_setup import remove

        remove(_bridge_dir(home, claimed))


def _fill_standard() -> None:
    """Open what the caller closed of descriptors 0, 1 and 2: nothing else must come to lie there."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one


def _close_others(keep: set[int]) -> None:
    """Close every descriptor that the caller's shell left open in us, but for `keep`."""
    try:
        # A limit of a million descriptors makes closing them one by one slow; this lists the open ones.
        opened = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        opened = list(range(256))
    for fd in set(opened) - keep:
        try:
            os.close(fd)
        except OSError:
            pass  # the one that listed the others


def _leave_terminal(home: Home) -> None:
    """Point our own descriptors 0, 1 and 2 away from the caller's terminal."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        log = os.open(
            os.path.join(home.state_dir, "session.log"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
    except OSError:
        log = null
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in {null, log}:
        os.close(fd)


def _tell_end(channel: _socket.socket, text: str, code: int) -> None:
    import json

    try:
        channel.sendall(json.dumps({"event": "exit", "code": code, "notices": [text]}).encode() + b"\n")
    except OSError:
        pass  # the client has gone
