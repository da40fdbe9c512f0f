"""Play the recording of a session in the terminal, search it, or export it.

Without NAME, lists the latest recordings, newest last. NAME is an agent: its latest recording is played, up
to now if the session is running; --session chooses an older one. FILE is any asciicast (version 2 or 3).

While it plays: space pauses, "." steps forward, + and - change the speed, the left and right arrows jump 5
seconds back and forward, "[" and "]" jump to the previous and next event, "/" searches what the screen
showed, n and N jump to the next and previous match, q quits. Only the text and colours of the recording reach
your terminal.

If the output is not a terminal (`relay replay NAME | less`), prints all that was shown as text, at once; with
--events, a table of the events: directives, hooks, injections, messages, states, notices; --search TEXT
prints when the screen showed TEXT, and with --events which events contain it.

With --json: a list of {"name", "team", "session", "began", "seconds", "bytes", "running", "command",
"files"}; with --events one line for each, {"at", "kind", "text"} and the fields of the journal's entry; with
--search one line {"at", "line"} for each place; with --screen {"at", "columns", "rows", "lines"}. Times
are seconds of the recording, `began` seconds since the epoch.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.cli.arguments import add_limit, add_team, agent_name
from relay.cli.output import print_list
from relay.control import guard
from relay.control.team_choice import fleet_team
from relay.errors import RecordingError, UsageError
from relay.home import Home
from relay.recording import store
from relay.recording.asciicast import Cast
from relay.recording.store import SessionRecording
from relay.replay import search, timeline, transcript
from relay.replay.export import export
from relay.replay.seekable_screen import SeekableScreen
from relay.replay.show import clock_time, play
from relay.terminal.libghostty import ScreenUnavailable
from relay.text import one_line, printable_json, visible

_ADVICE = "an agent can replay only its own recordings."
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", type=_name_or_file, metavar="NAME|FILE", help="an agent, or an asciicast file"
    )
    add_team(parser, "only in this team")
    parser.add_argument("--session", metavar="ID", help="only this session, as named in the list")
    parser.add_argument("--speed", type=_speed, default=1.0, metavar="N", help="play at N times the speed")
    parser.add_argument(
        "--idle", type=_seconds, default=2.0, metavar="SECONDS", help="shorten pauses to at most this (2)"
    )
    parser.add_argument(
        "--at", type=_seconds, default=0.0, metavar="TIME", help="start at this time: 90, 1:30"
    )
    parser.add_argument("--events", action="store_true", help="show events next to the screen")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--search", metavar="TEXT", help="list the times at which TEXT appeared on the screen"
    )
    instead.add_argument("--screen", type=_seconds, metavar="TIME", help="print the screen at this time")
    instead.add_argument(
        "--export", metavar="OUT", help='write a single asciicast file; "-" for standard output'
    )
    parser.add_argument("--force", action="store_true", help="let --export overwrite a file")
    add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _name_or_file(text: str) -> str:
    return text if _is_path(text) or Path(text).is_file() else agent_name(text)


def _is_path(what: str) -> bool:
    """Return True if `what` can only be a file, not an agent's name."""
    return os.sep in what or what.endswith(store.CAST)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if args.what is None:
        for option in ("session", "events", "search", "screen", "export"):
            if getattr(args, option) not in (None, False):
                raise UsageError(f"--{option} needs a NAME: `relay replay` lists the recordings.")
        return _list(home, args)
    if args.all or args.limit is not None:
        raise UsageError("--limit and --all go with the list of recordings (no NAME).")
    paths, title = _choose(home, args)
    cast = Cast(*paths)
    try:
        code = _show(cast, title, args)
    except ScreenUnavailable as error:
        raise ScreenUnavailable(
            f"{error} Without a virtual screen, you can still read a recording as text (`relay replay NAME | "
            "less`), export it (--export OUT) and list its events (--events --json)."
        ) from None
    if cast.skipped:
        print(f"relay: {cast.skipped} damaged lines of the recording were skipped.", file=sys.stderr)
    return code


def _show(cast: Cast, title: str, args: argparse.Namespace) -> int:
    if args.export is not None:
        return _export(cast, args.export, force=args.force)
    if args.search == "":
        raise UsageError("--search needs a text.")
    if args.search is not None and args.events:
        return _events(cast, args.search, as_json=args.json)
    if args.search is not None:
        return _search(cast, args.search, as_json=args.json)
    if args.screen is not None:
        return _screen(cast, args.screen, as_json=args.json)
    interactive = os.isatty(0) and os.isatty(1) and os.environ.get("TERM", "dumb") != "dumb"
    if interactive and not args.json:
        options = {name: getattr(args, name) for name in ("speed", "idle", "at", "events")}
        return play(cast, timeline.read(cast), title, source=0, sink=1, **options)
    if args.events:
        return _events(cast, "", as_json=args.json)
    if args.json:
        raise UsageError("--json goes with the list (no NAME), or with --events, --search or --screen.")
    for line in transcript.lines(cast):
        print(visible(line))
    return 0


def _choose(home: Home, args: argparse.Namespace) -> tuple[list[Path], str]:
    what: str = args.what
    path = Path(what)
    if not _is_path(what):
        own = guard.as_itself(home, "replay", name=what, team=args.team, advice=_ADVICE)
        team = own.team if own is not None else args.team or fleet_team(home, what)
        if store.recordings(home.recordings, what, team) or own is not None or not path.is_file():
            found = store.find(home.recordings, what, team, args.session)
            return found.paths, found.first.name
    real, folder = path.resolve(), home.recordings.resolve()
    if folder in real.parents:
        part = store.parse(real)
        whose = real.name if part is None else part.name  # no agent has the name of a file
        guard.as_itself(home, "replay", name=whose, team=real.parent.name, advice=_ADVICE)
    return [path], path.name


def _list(home: Home, args: argparse.Namespace) -> int:
    own = guard.as_itself(home, "replay", team=args.team, advice=_ADVICE)
    name, team = (own.name, own.team) if own is not None else (None, args.team)
    print_list(
        args,
        store.recordings(home.recordings, name, team),
        _public,
        _row,
        header=("NAME", "TEAM", "SESSION", "BEGAN", "LENGTH", "SIZE", "COMMAND"),
        right=(4, 5),
        empty="There are no recordings. The `record` setting decides whether sessions are recorded.",
        noun="recording",
    )
    return 0


def _row(recording: SessionRecording) -> tuple[str, ...]:
    entry = _public(recording)
    length = "?" if entry["seconds"] is None else clock_time(entry["seconds"])
    return (
        *(one_line(str(entry[key]), None) for key in ("name", "team", "session")),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["began"])),
        length + ("+" if entry["running"] else ""),
        f"{entry['bytes'] / 1e6:.1f} MB",
        one_line(entry["command"] or "", None),
    )


def _public(recording: SessionRecording) -> dict[str, Any]:
    """Return the JSON object of a recording; seconds and command are None if it cannot be read."""
    seconds, command = None, None
    with suppress(RecordingError):
        cast = Cast(*recording.paths)
        seconds, command = round(cast.seconds, 3), cast.header.command
    first = recording.first
    return {
        "name": first.name,
        "team": first.team,
        "session": first.session,
        "began": first.began,
        "seconds": seconds,
        "bytes": recording.size,
        "running": recording.in_use,
        "command": command,
        "files": [str(path) for path in recording.paths],
    }


def _events(cast: Cast, text: str, *, as_json: bool) -> int:
    """Print the moments that contain `text`; return 1 if there are none and `text` is not empty."""
    moments = timeline.read(cast).moments
    found = [each for each in moments if text.casefold() in f"{each.kind} {each.text}".casefold()]
    for moment in found:
        text_line = f"{moment.at:10.3f}  {moment.kind:<16} {visible(moment.text)}"
        print(printable_json(moment.public()) if as_json else text_line)
    return 0 if found or not text else 1


def _search(cast: Cast, text: str, *, as_json: bool) -> int:
    """Print each appearance; return 1 if the text never appeared, as grep does."""
    code = 1
    with SeekableScreen(cast) as seekable:
        for hit in search.hits(seekable, text):
            code = 0
            found = {"at": round(hit.time, 3), "line": hit.line}
            print(printable_json(found) if as_json else f"{hit.time:10.3f}  {visible(hit.line)}")
    return code


def _screen(cast: Cast, at: float, *, as_json: bool) -> int:
    with SeekableScreen(cast) as seekable:
        seekable.seek(at)
        lines = transcript.screen(seekable)
        columns, rows = seekable.recorded
    if as_json:
        print(printable_json({"at": at, "columns": columns, "rows": rows, "lines": lines}, indent=2))
        return 0
    for line in lines:
        print(visible(line))
    return 0


def _export(cast: Cast, target: str, *, force: bool) -> int:
    lines = export(cast, timeline.read(cast))
    if target == "-":
        sys.stdout.buffer.writelines(lines)
        return 0
    path = Path(target)
    if any(path.exists() and path.samefile(part.path) for part in cast.parts):
        raise RecordingError(f"{path} is the recording itself. Name another file.")
    try:
        # Private, like the recording; a device or a pipe is opened as it is.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            flags = os.O_WRONLY | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as out:
            out.writelines(lines)
    except FileExistsError:
        raise RecordingError(f"{path} exists. Name another file, or overwrite it with --force.") from None
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}. Name another file.") from None
    return 0


def _speed(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"not a valid speed: {text!r}. Give a number above 0, at most 1000.")
    return value


def _seconds(text: str) -> float:
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        return int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
    value = _number(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"not a valid time: {text!r}. Give seconds, or minutes as in 1:30.")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # outside every range
