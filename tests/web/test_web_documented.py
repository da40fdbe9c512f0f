"""docs/WEB.md has all that relay web's API answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from starlette.routing import Route, WebSocketRoute

from relay.web import terminals
from relay.web.api import Api

PAGE = (Path(__file__).parents[2] / "docs" / "WEB.md").read_text(encoding="utf-8")


class Unused:
    """In place of what the routes use once they are asked."""

    def serve(self) -> None: ...


def test_each_path_of_the_api_is_documented() -> None:
    unused = cast(Any, Unused())
    routes = Api(unused, unused, unused, unused, unused).app().routes
    served = {
        f"{method} {_as_documented(each.path)}"
        for each in routes
        if isinstance(each, Route)
        for method in {*(each.methods or ())} - {"HEAD"}
    }
    served |= {f"WS {_as_documented(each.path)}" for each in routes if isinstance(each, WebSocketRoute)}
    assert served == {*re.findall(r"`((?:GET|POST|DELETE|WS) /api/[\w/]+)", PAGE)}


def _as_documented(path: str) -> str:
    """Return `/api/agents/{name}` as `/api/agents/NAME`."""
    return re.sub(r"{(\w+)}", lambda found: found[1].upper(), path)


def test_each_close_code_is_documented() -> None:
    codes = {terminals.GOES, terminals.ENDED, terminals.REFUSED, terminals.DETACHED, terminals.LOGGED_OUT}
    assert {int(code) for code in re.findall(r"^\| (\d{4}) \|", PAGE, re.MULTILINE)} == codes
