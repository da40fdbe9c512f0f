"""The embedded broker: see, start, stop or run it.

Sessions start it when they need it, and it ends a minute after the last of them; usually there is nothing to
do. `start` starts one that stays. `run` keeps it in the foreground, for a service manager. With a broker of
your own in relay.toml (or --broker), `status` says whether that one answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from relay import settings
from relay.bus import broker
from relay.bus.broker import Endpoint
from relay.errors import BrokerError, RelayError
from relay.home import Home
from relay.session import guard


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=("status", "start", "stop", "run"),
        help="status, start, stop or run",
    )
    parser.add_argument("--port", type=port, help="where to listen on loopback (default: a free port)")
    parser.add_argument("--broker", metavar="URL", help="for status: ask this broker instead")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    match args.action:
        case "start":
            endpoint = broker.ensure(home.ensure(), port=args.port, keep=True)
            if args.port is not None and endpoint.port != args.port:
                raise BrokerError(
                    f"a broker runs already, at {endpoint.url}. "
                    "Stop it first (`relay broker stop`), then start it at the other port."
                )
            _show(args, endpoint, running=True)
        case "stop":
            guard.person_only(home, "broker stop", "an agent may not stop the broker. The person can.")
            stopped = broker.stop(home)
            if args.json:
                print(json.dumps({"stopped": stopped}))
            else:
                print("The broker has ended." if stopped else "No broker was running.")
        case "run":
            return broker.run(home.ensure(), port=args.port)
        case _:
            return _status(home, args)
    return 0


def _status(home: Home, args: argparse.Namespace) -> int:
    """Print the status; the exit code is 0 either way, as it was found out."""
    url = args.broker or settings.load(home, Path.cwd(), lambda _: False)[0].broker
    if not url:
        _show(args, broker.status(home), running=broker.status(home) is not None)
        return 0
    endpoint = broker.external(url)
    try:
        asyncio.run(_greet(endpoint))
    except RelayError as error:
        _show(args, endpoint, running=False, problem=str(error))
    else:
        _show(args, endpoint, running=True)
    return 0


async def _greet(endpoint: Endpoint) -> None:
    """Log in and out. Raises BrokerError."""
    from relay.bus.transport import Identity, MqttTransport  # loads the MQTT client

    identity = Identity("", keep=False, user=endpoint.user, password=endpoint.password)
    transport = MqttTransport(endpoint, identity)
    await transport.connect()
    transport.close()


def _show(
    args: argparse.Namespace, endpoint: Endpoint | None, *, running: bool, problem: str | None = None
) -> None:
    row: dict[str, Any] = {
        "running": running,
        "kind": endpoint.kind if endpoint else "embedded",
        "host": endpoint.host if endpoint else None,
        "port": endpoint.port if endpoint else None,
        "url": endpoint.url if endpoint else None,
        "pid": endpoint.pid if endpoint else None,
    }
    if problem is not None:
        row["problem"] = problem
    if args.json:
        print(json.dumps(row, indent=2))
    elif problem is not None:
        print(f"Not usable: {problem}")
    elif endpoint is None:
        print("No broker is running; the first session starts one.")
    else:
        pid = f" (pid {endpoint.pid})" if endpoint.pid else ""
        print(f"The {endpoint.kind} broker runs at {endpoint.url}{pid}.")


def port(text: str) -> int:
    value = int(text)
    if not 0 < value < 65536:
        raise ValueError(text)
    return value
