"""Serve relay's verbs as tools of the Model Context Protocol, on standard input and output.

Started by a wrapped agent, the server acts for that agent; started from your own shell, or by a program of
yours, it acts for you. It refuses every call if its process belongs to neither for certain. docs/MCP.md lists
the tools. The server ends with its client.

  claude mcp add relay -- relay mcp      for a program of your own; wrapped agents need no set-up
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from socket import socket
    from typing import Any

    from relay.mcp.server import Settle


def configure(_: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(_: argparse.Namespace) -> int:
    return quick()


def quick() -> int:
    """Serve without loading argparse, until the client has gone."""
    from relay.mcp.server import McpServer

    return McpServer(_carry_out).run()


def _carry_out(name: str, given: dict[str, Any], link: socket) -> tuple[str, Settle | None]:
    from relay.cli.main import dispatch
    from relay.mcp.calls import carry_out

    return carry_out(name, given, link, dispatch)
