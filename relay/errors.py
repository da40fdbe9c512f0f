"""The errors that relay raises on purpose, in one tree.

    RelayError                      exit code 1
    ├── UsageError                  2     the command line is wrong
    ├── CommandNotFound             127   the agent's command does not exist
    ├── CommandNotExecutable        126   it exists but cannot be run
    ├── InvalidName                 2     an agent, team or channel name is malformed
    ├── NameInUse                         another live session has the name
    ├── NoSuchSession                     no live session has the name
    ├── SessionUnresponsive               a session has the name but does not answer
    ├── OutcomeUnknown                    a session ended during a request, which it may have carried out
    ├── UnknownRecipient                  no agent in the team ever had the name
    ├── NotAMember                        the agent is not in that channel
    ├── MessageRefused                    empty, too large, or not allowed
    │   ├── ReceiverEnded                 the receiver was a single run of an agent, which has ended
    │   └── ReceiverStarting              the receiver has just started, and takes no messages yet
    ├── NotAllowed                        a guard rail: an agent may not do this
    ├── HomeError                         one of relay's directories cannot be used
    ├── ConfigError                       relay.toml, relay.config.py or a pattern file is wrong
    │   └── ConfigMistakes                    ... in several places
    ├── BrokerError                       the broker cannot be started or reached
    ├── LedgerError                       the message ledger cannot be read or written
    │   ├── LedgerAway                    ... at the moment; another try may succeed
    │   └── NoSuchMessage                 no message has that id
    ├── MemoryStoreError                  the memory store cannot be read or written
    ├── RecordingError                    a file is not a recording, or is cut off
    ├── ServiceError                      the automatic start after a reboot cannot be changed
    └── WorktreeError                     an agent's git worktree cannot be prepared, or is another agent's
        └── SetupFailed                   ... because a setup command failed

A message says what is wrong and then what to do next.  The command line prints ``relay: MESSAGE``, without a
traceback, and exits with `exit_code`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `import typing` costs 6 ms, and this module is on every start path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LISTED = 5
"""Maximum mistakes of a file in notices: one that is not trusted may have any number."""


class RelayError(Exception):
    """An error that the user can fix. `str(error)` is one or more sentences for them."""

    exit_code = 1


class UsageError(RelayError):
    exit_code = 2


class CommandNotFound(RelayError):
    exit_code = 127


class CommandNotExecutable(RelayError):
    exit_code = 126


class InvalidName(RelayError):
    exit_code = 2


class NameInUse(RelayError):
    pass


class NoSuchSession(RelayError):
    pass


class SessionUnresponsive(RelayError):
    pass


class OutcomeUnknown(RelayError):
    pass


class UnknownRecipient(RelayError):
    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class NotAMember(RelayError):
    pass


class MessageRefused(RelayError):
    pass


class ReceiverEnded(MessageRefused):
    pass


class ReceiverStarting(MessageRefused):
    pass


class NotAllowed(RelayError):
    pass


class HomeError(RelayError):
    pass


class ConfigError(RelayError):
    """A mistake in one of the user's files, at `path` and `line` (1-based) if known."""

    def __init__(self, message: str, path: Path | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
        super().__init__(where + message)
        self.path = path
        self.line = line

    def notices(self, outcome: str) -> list[str]:
        """Return a line for each of the first mistakes; `outcome`, a sentence, ends the last."""
        return [f"{self} {outcome}"]


class ConfigMistakes(ConfigError):
    """All mistakes in one file; `mistakes` has one or more, sorted by line."""

    def __init__(self, path: Path, mistakes: Sequence[ConfigError]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda each: each.line or 0))
        shown = "\n".join(f"  {each}" for each in self.mistakes)
        RelayError.__init__(
            self, f"{path} has {len(mistakes)} mistakes:\n{shown}" if len(mistakes) > 1 else shown.strip()
        )
        self.path = path
        self.line = self.mistakes[0].line

    def notices(self, outcome: str) -> list[str]:
        *others, last = map(str, self.mistakes[:LISTED])
        total = f" There are {len(self.mistakes)} mistakes." if len(self.mistakes) > LISTED else ""
        return [*others, f"{last}{total} {outcome}"]


class BrokerError(RelayError):
    pass


class LedgerError(RelayError):
    pass


class LedgerAway(LedgerError):
    """The ledger is locked, or about to be reopened: another try a moment later may succeed."""


class NoSuchMessage(LedgerError):
    """No message in this home has that id."""


class MemoryStoreError(RelayError):
    pass


class RecordingError(RelayError):
    pass


class ServiceError(RelayError):
    pass


class WorktreeError(RelayError):
    pass


class SetupFailed(WorktreeError):
    """A setup command of a worktree has failed.

    command: as written in the fleet file. code: its exit code, 128+N for signal N; None if it timed out.
    lines:   the last lines it printed. log: the file with everything the setup printed.
    """

    def __init__(
        self, message: str, command: str, code: int | None, lines: tuple[str, ...], log: Path
    ) -> None:
        super().__init__(message)
        self.command = command
        self.code = code
        self.lines = lines
        self.log = log
