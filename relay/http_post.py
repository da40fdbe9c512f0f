"""A program that sends one HTTP request: URL, headers and body come as JSON on standard input.

Redirects are not followed: they would take the text, and what authorizes it, to another server.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

SECONDS = 8.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def main() -> int:
    url, headers, body = json.load(sys.stdin)
    request = urllib.request.Request(url, body.encode(), headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=SECONDS):
            return 0
    except urllib.error.HTTPError as error:
        print(f"the server answers {error.code} {error.reason}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(getattr(error, "reason", error), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
