"""`python -m docsite`: write docs/relay.1."""

from __future__ import annotations

from docsite.generated import PAGES
from docsite.man_page import man_page

PAGE = PAGES / "relay.1"

if __name__ == "__main__":
    PAGE.write_text(man_page(), encoding="utf-8")
