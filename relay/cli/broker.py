"""Show, start, stop or run the broker, or prepare your own.

Sessions start the embedded broker when they need it, and it stops a minute after the last of them ends; you
rarely need this command. `start` starts a broker that keeps running; `run` keeps it in the foreground, for a
service manager. With your own broker in relay.toml (or --broker), `status` shows whether it answers.

For your own broker, `acl` writes its access list and its users, and `credentials` copies an agent's
credentials to another host. `relay doctor --broker URL` then tests that the list holds.

  relay broker acl mosquitto -o /etc/mosquitto/relay Alice Bob
  relay broker credentials export -o bob.json Bob
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relay import names, settings
from relay.cli.arguments import add_actions, add_json, add_team, agent_name, port
from relay.cli.output import Outcomes, print_json
from relay.control import guard
from relay.control.sessions import live
from relay.dataclass import asdict, replace
from relay.errors import BrokerError, RelayError
from relay.home import Home
from relay.storage.files import write_private
from relay.text import count
from relay.transport import acl, broker, credentials
from relay.transport.credentials import Credentials
from relay.transport.endpoint import Endpoint, endpoints

_NEXT = {
    "mosquitto": """\
Next, on the broker's host (config/mosquitto/mosquitto.conf of relay is a whole example):
  chown -R mosquitto: {directory}
  in mosquitto.conf:  allow_anonymous false
                      password_file {directory}/passwords
                      acl_file {directory}/acl
  kill -HUP the running mosquitto, which rereads both files""",
    "nats": """\
Next, on the broker's host (config/nats/nats-server.conf of relay is a whole example):
  in nats-server.conf:  include "relay.conf"
                        with its path from that file's directory; and no other `authorization`
  nats-server --signal reload""",
}

_REFUSED = {
    "start": "start the broker",
    "stop": "stop the broker",
    "run": "run the broker",
    "acl": "write access lists",
    "credentials": "take credentials",
}


def configure(parser: argparse.ArgumentParser) -> None:
    action = add_actions(parser)
    status = action("status", "Show whether the broker answers, and where.")
    start = action("start", "Start the embedded broker. It runs until you stop it.")
    stop = action("stop", "Stop the embedded broker.")
    for each in (status, start, stop):
        add_json(each, "print JSON")
    help = "query this broker instead; of several, the first that answers"
    status.add_argument("--broker", action="append", metavar="URL", help=help)
    for each in (start, action("run", "Run the embedded broker in the foreground.")):
        each.add_argument("--port", type=port, help="where to listen on loopback (default: a free port)")
    rights = action(
        "acl",
        "Write the access list and user list for your own broker, with everyone who has credentials in this "
        "home. Creates missing credentials for NAMEs and for you (the sender 'you').",
    )
    rights.add_argument("kind", choices=("mosquitto", "nats"), metavar="mosquitto|nats")
    add_team(rights, "the team of NAMEs (default: RELAY_TEAM, else 'default')")
    help = "write files (mode 0600) to DIR; otherwise passwords are not shown"
    rights.add_argument("-o", "--output", type=Path, metavar="DIR", help=help)
    rights.add_argument("names", nargs="+", type=agent_name, metavar="NAME")
    add_json(rights, "print a JSON object")
    keys = action("credentials", "Copy agents' credentials to another host, in a file.")
    ways = keys.add_subparsers(dest="way", metavar="export|import", required=True)
    export = ways.add_parser("export", help="write them to a file (mode 0600)")
    add_team(export, "the team of NAMEs (default: RELAY_TEAM, else 'default')")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", required=True)
    export.add_argument("names", nargs="+", type=agent_name, metavar="NAME", help="an agent, or 'you'")
    add_json(export, "print a JSON object, without passwords")
    take = ways.add_parser("import", help="replace this home's credentials with those in a file")
    take.add_argument("file", type=Path, metavar="FILE")
    add_json(take, "print whose credentials were imported, as a JSON list, without passwords")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if what := _REFUSED.get(args.action):
        guard.user_only(home, f"broker {args.action}", f"an agent may not {what}. The user can.")
    match args.action:
        case "start":
            endpoint = broker.ensure(home.ensure(), port=args.port, keep=True)
            if args.port is not None and endpoint.port != args.port:
                raise BrokerError(
                    f"a broker is already running at {endpoint.url}. Stop it with `relay broker stop`, then "
                    "start it on the other port."
                )
            _show(args, endpoint)
        case "stop":
            stopped = broker.stop(home)
            if args.json:
                print_json({"stopped": stopped})
            else:
                again = " The next session that needs a broker starts another." if live(home) else ""
                print(f"The broker has stopped.{again}" if stopped else "No broker was running.")
        case "run":
            return broker.run(home.ensure(), port=args.port)
        case "acl":
            _write_rights(home.ensure(), args)
        case "credentials":
            if args.way == "export":
                _export(home.ensure(), args)
            else:
                _import(home.ensure(), args)
        case _:
            return _status(home, args)
    return 0


def _write_rights(home: Home, args: argparse.Namespace) -> None:
    _agents(home, args.team, [*args.names, names.PERSON])
    with broker.credential_store(home) as store:
        everybody = list(store.all())
    found: dict[str, Any] = {"kind": args.kind, "users": [each.user for each in everybody]}
    if args.output is None:
        if args.kind == "nats":
            text = acl.nats([replace(agent, password="(left out; -o DIR writes it)") for agent in everybody])
        else:
            text = acl.mosquitto(everybody)
        if args.json:
            print_json({**found, "files": [], "text": text})
        else:
            print(text)
        return
    files = {"relay.conf": acl.nats(everybody)}
    if args.kind == "mosquitto":
        files = {"acl": acl.mosquitto(everybody), "passwords": acl.mosquitto_passwords(everybody)}
    for file, text in files.items():
        _write(args.output / file, text)
    directory = args.output.resolve()
    if args.json:
        print_json({**found, "files": [str(directory / file) for file in files], "text": None})
        return
    print(f"{' and '.join(str(directory / file) for file in files)}: {count(len(everybody), 'user')}.")
    print(_NEXT[args.kind].format(directory=directory))


def _export(home: Home, args: argparse.Namespace) -> None:
    found = _agents(home, args.team, args.names)
    _write(args.output, json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if args.json:
        print_json({"file": str(args.output.resolve()), "users": [each.user for each in found]})
        return
    print(f"{args.output}: the credentials of {', '.join(each.user for each in found)}.")
    print(
        "Anyone with that file can act as them. On the other host:\n"
        f"  relay broker credentials import {args.output.name}"
    )


def _import(home: Home, args: argparse.Namespace) -> None:
    path: Path = args.file
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        found = [credentials.parse(each) for each in (value if isinstance(value, list) else [value])]
    except OSError as error:
        raise BrokerError(f"cannot read {path}: {error.strerror}. Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise BrokerError(
            f"{path} contains no credentials ({error}). Create such a file with `relay broker credentials "
            "export`."
        ) from None
    with Outcomes(args) as report, broker.credential_store(home) as store:
        for each in found:
            store.put(each)
            report.add(user=each.user, outcome="imported")
        report.say(f"This home now has the credentials of {', '.join(each.user for each in found)}.")
        report.say("Their running sessions keep the old credentials until you restart them.")


def _agents(home: Home, team: str | None, wanted: Sequence[str]) -> list[Credentials]:
    """Return the credentials of `wanted`; create missing ones."""
    team = names.team(team)
    for name in wanted:
        if not names.same(name, names.PERSON):
            names.validate(name)
    return [broker.credentials(home, team, name) for name in wanted]


def _write(path: Path, text: str) -> None:
    try:
        write_private(path, text)
    except OSError as error:
        raise BrokerError(
            f"cannot write {path}: {error.strerror}. Make it writable, or choose another place with -o."
        ) from None


def _status(home: Home, args: argparse.Namespace) -> int:
    """Print the status. Return 0 whether or not the broker answers: the query itself succeeded."""
    url = ",".join(args.broker or [settings.load(home, Path.cwd())[0].broker])
    nodes = endpoints(url)
    endpoint, problem = None if nodes else broker.status(home), None
    for endpoint in nodes:
        try:
            asyncio.run(_greet(endpoint))
        except RelayError as error:
            problem = str(error)
        else:
            problem = None
            break
    _show(args, endpoint, problem)
    return 0


async def _greet(endpoint: Endpoint) -> None:
    """Log in and out. Raise BrokerError."""
    from relay.transport.mqtt import connected  # loads the MQTT client

    async with connected(endpoint, credentials.Login("", user=endpoint.user, password=endpoint.password)):
        pass


def _show(args: argparse.Namespace, endpoint: Endpoint | None, problem: str | None = None) -> None:
    """Print where the broker is. problem: why it does not answer."""
    row: dict[str, Any] = {"running": endpoint is not None and problem is None}
    row |= {key: getattr(endpoint, key, None) for key in ("kind", "host", "port", "url", "pid")}
    if endpoint is None:
        row["kind"] = "embedded"
    if problem is not None:
        row["problem"] = problem
    if args.json:
        print_json(row)
    elif problem is not None:
        print(f"Not usable: {problem}")
    elif endpoint is None:
        print("No broker is running. The first session starts one.")
    else:
        pid = f" (pid {endpoint.pid})" if endpoint.pid else ""
        print(f"The {endpoint.kind} broker runs at {endpoint.url}{pid}.")
