"""What a session works with: settings, the agent's profile, handlers, and where their files were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from relay import builtin, names
from relay import settings as settings_file
from relay.agents.catalog import fallback
from relay.agents.catalog import for_command as profile_for
from relay.agents.catalog import load as load_profile
from relay.agents.profile import Profile
from relay.directives.grammar import DECORATION, PREFIX
from relay.errors import RelayError
from relay.features import onboarding
from relay.home import Home
from relay.hooks import config_file
from relay.hooks.config import MemoryConfig
from relay.hooks.registry import Registry
from relay.hooks.trust import Trust
from relay.rules.rule_book import RuleBook
from relay.session.options import Options
from relay.settings import Settings

RULE_NOTICES = 3
"""How many lines about files of rules are shown at the start of a session."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that was read from files.

    channels: those to join. notices: what was not taken, and why, one line each.
    """

    directory: Path
    settings: Settings
    profile: Profile
    registry: Registry
    rules: RuleBook
    memory: MemoryConfig
    config: config_file.ConfigFile | None
    channels: tuple[str, ...]
    onboarding: str
    notices: tuple[str, ...]

    @property
    def teaches(self) -> bool:
        """Whether the agent is told of relay: a program that relay does not know as an agent never is."""
        return self.settings.teach == "auto" and bool(self.profile.states or self.profile.native.hooks)

    @property
    def knows_agent(self) -> bool:
        """True if relay has rules for the agent's screen; of a plain program it has none."""
        return bool(self.profile.states)

    @property
    def prefix(self) -> str:
        """The character that begins this agent's directives: its profile's, where that has one of its own."""
        own = self.profile.prefix
        return own if own != PREFIX else self.settings.prefix

    @property
    def decoration(self) -> str:
        """Regular expression for what this agent puts before a paragraph."""
        return DECORATION if self.profile.decoration is None else self.profile.decoration.pattern

    @classmethod
    def load(cls, options: Options, home: Home, directory: Path) -> Setup:
        """Read it all; a file with a mistake is left out, and the notice says where the mistake is."""
        notices: list[str] = []
        trust = Trust(home)
        settings, untaken = settings_file.load(home, directory, trust.covers_file)
        notices += untaken
        try:
            profile = (
                load_profile(options.profile, home) if options.profile else profile_for(options.command, home)
            )
        except RelayError as error:
            notices.append(f"{error} The generic profile is used.")
            profile = fallback()
        if settings.inject == "always":
            profile = replace(profile, inject="auto", executes=())
        elif settings.inject == "never":
            profile = replace(profile, inject="never")
        registry = Registry()
        builtin.install(registry)
        memory = options.memory
        config = None
        channels = settings.channels
        try:
            choice = config_file.choose(home, directory, Path(options.config) if options.config else None)
            if choice.notice is not None:
                notices.append(choice.notice)
            if choice.file is not None:
                loaded = config_file.load(choice.file, registry)
                registry.include(loaded.registry)
                memory = memory or loaded.memory
                channels += loaded.channels
                config = choice.file
        except RelayError as error:
            notices.append(f"{error} The session runs without it.")
        if options.registry is not None:
            registry.include(options.registry)
        rules = RuleBook.load(home, directory, [Path(path) for path in options.rules])
        notices += _few([str(warning) for warning in rules.warnings])
        text, notice = onboarding.read(home)
        if notice is not None:
            notices.append(notice)
        return cls(
            directory,
            settings,
            profile,
            registry,
            rules,
            memory or MemoryConfig(),
            config,
            tuple(names.channel(each) for each in channels),
            text,
            tuple(notices),
        )


def _few(warnings: list[str]) -> list[str]:
    more = len(warnings) - RULE_NOTICES
    if more <= 0:
        return warnings
    return [*warnings[:RULE_NOTICES], f"There are {more} more warnings about rules: relay hooks list"]
