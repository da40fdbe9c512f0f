"""`python -m docsite`: write the man page, docs/relay.1."""

from __future__ import annotations

from pathlib import Path

from docsite.man_page import man_page

PAGE = Path(__file__).parent.parent / "docs" / "relay.1"

if __name__ == "__main__":
    PAGE.write_text(man_page(), encoding="utf-8")
