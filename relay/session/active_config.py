"""The configuration in force for an agent: its next session keeps what a mistake in a file would remove.

STATE/sessions/ID.config, which ends with the agent; a restarted one gets a copy:

    {"configs": [[PATH, SOURCE]], "rules": [[PATH, ORIGIN, SOURCE]], "notices": [...], "mistakes": [...]}

SOURCE is the file's content when it was last used, in Base64.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from relay.dataclass import dataclass, field
from relay.home import Home
from relay.hooks.config_file import HANDLERS, ConfigFile, is_own
from relay.rules.rule_book import RuleSource
from relay.storage.files import write_private

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """configs: by path. notices: what the user was told. mistakes: those that left something in force."""

    configs: Mapping[Path, ConfigFile] = field(default_factory=dict)
    rules: tuple[RuleSource, ...] = ()
    notices: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()

    def former(self, path: Path, home: Home) -> ConfigFile | None:
        """Return what was in force in place of the file at `path`; a project's may have been further up."""
        place = _place(path, home)
        return next((file for file in self.configs.values() if _place(file.path, home) == place), None)

    def gone(self, found: Collection[Path], home: Home) -> list[str]:
        """Return a notice for each file of which nothing is `found` any more, so that it no longer counts."""
        places = {_place(path, home) for path in found}
        lost = [path for path in self.configs if _place(path, home) not in places]
        return [f"{path} is gone; what it had registered is no longer active." for path in lost]

    @classmethod
    def load(cls, home: Home, session: str) -> ActiveConfig:
        """Return what the agent's last session noted; nothing if it noted nothing."""
        try:
            saved = json.loads(_path(home, session).read_bytes())
            configs = [ConfigFile(Path(path), base64.b64decode(text)) for path, text in saved["configs"]]
            rules = [(Path(path), origin, base64.b64decode(text)) for path, origin, text in saved["rules"]]
            return cls(
                {file.path: file for file in configs},
                tuple(RuleSource(*each) for each in rules),
                tuple(map(str, saved["notices"])),
                tuple(map(str, saved["mistakes"])),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return cls()

    def save(self, home: Home, session: str) -> None:
        """Note it for the agent's next session, unless there is nothing to note."""
        path = _path(home, session)
        if self == ActiveConfig() and not path.exists():
            return
        saved = {
            "configs": [[str(path), _encoded(file.source)] for path, file in self.configs.items()],
            "rules": [[str(each.path), each.origin, _encoded(each.content)] for each in self.rules],
            "notices": self.notices,
            "mistakes": self.mistakes,
        }
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(path, json.dumps(saved))
        except OSError as error:
            _log.warning("what is in force cannot be noted for the next session: %s", error)


def _place(path: Path, home: Home) -> tuple[bool, str]:
    """Return whose file it is, the user's own or the project's, and which of its handlers ("": none)."""
    return is_own(path, home), path.name if path.parent.name == HANDLERS else ""


def _path(home: Home, session: str) -> Path:
    return home.state / "sessions" / f"{session}.config"


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
