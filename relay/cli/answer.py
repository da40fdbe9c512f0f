"""Show an agent's question, or answer it.

Without CHOICE, only shows the question. CHOICE is an option's number, its text or how the text begins, or the
key that the dialog shows for it, such as y; a CHOICE that fits several options is refused. relay shows the
question first and answers only if that same question is still on the screen; then it prints what it pressed.
An agent may not answer: neither its own questions nor another agent's.

With --json: {"id", "kind", "lines", "options", "selected", "text"}, and {"result", "option", "typed"} if it
was answered.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from relay.cli.arguments import add_json, add_session
from relay.cli.output import print_json
from relay.control.guard import user_only
from relay.control.sessions import find
from relay.errors import UsageError
from relay.home import Home
from relay.text import visible

_MENU_TIMEOUT = 30.0  # seconds a session may take to walk through a long menu key by key
_UNCONFIRMED = "The question is still on the screen: check its terminal."


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("choice", nargs="?", metavar="CHOICE", help="an option: its number or its text")
    parser.add_argument(
        "--text",
        metavar="TEXT",
        help="answer with your own text, if the question allows it; '-' reads it from standard input",
    )
    parser.add_argument(
        "--question", metavar="ID", help="answer only if this question is still open; ID is shown with it"
    )
    add_json(parser, "print a JSON object")


def run(args: argparse.Namespace) -> int:
    if args.choice is not None and args.text is not None:
        raise UsageError("give either a CHOICE or --text, not both.")
    home = Home.from_env()
    user_only(home, "answer", "an agent may not answer agents' questions. The user can, outside the session.")
    session = find(home, args.name, args.team)
    asked = session.ask({"op": "question"})
    answering = args.choice is not None or args.text is not None
    if not args.json:
        print(_shown(session.name, asked))
        if not answering:
            print(f"\n`relay answer {session.name} CHOICE --question {asked['id']}` answers it.")
    if args.question is not None and args.question != asked["id"]:
        raise UsageError(f"{session.name} is now asking something else. Nothing was typed.")
    if answering:
        text = sys.stdin.read().removesuffix("\n") if args.text == "-" else args.text
        request = {"op": "answer", "id": asked["id"], "choice": args.choice or "", "text": text}
        answer = session.ask(request, _MENU_TIMEOUT)
        asked |= {key: answer[key] for key in ("result", "option", "typed")}
    if args.json:
        print_json(asked)
    elif answering:
        told = [_pressed(asked), *([] if asked["result"] == "answered" else [_UNCONFIRMED])]
        print(f"\n{' '.join(told)}")
    return 0 if asked.get("result", "answered") == "answered" else 1


def _pressed(asked: dict[str, Any]) -> str:
    option, typed = asked["option"], visible(asked["typed"])
    if option is None:
        return f"Typed {typed!r} and Enter."
    meant = f"{option['number']}: {visible(option['text']).rstrip('.')}"
    return f"Typed {typed!r} and Enter for {meant}." if typed else f"Pressed Enter on {meant}."


def _shown(name: str, asked: dict[str, Any]) -> str:
    rows = [f"{name} asks ({asked['kind']}), {asked['id']}:", ""]
    rows += [f"  {visible(line)}" for line in asked["lines"]]
    rows += [""] if asked["options"] else []
    for each in asked["options"]:
        mark = ">" if each["number"] == asked["selected"] else " "
        rows.append(f"{mark} {each['number']}. {visible(each['text'])}")
    return "\n".join(rows)
