"""The configuration of a session: settings, the agent's profile, handlers, rules."""

from __future__ import annotations

from pathlib import Path

from relay import builtin, names
from relay import settings as settings_file
from relay.agents import catalog
from relay.agents.prices import FILE, Prices
from relay.agents.profile import Profile
from relay.dataclass import dataclass, replace
from relay.directives.grammar import PREFIX
from relay.errors import ConfigError, RelayError
from relay.features import onboarding
from relay.home import Home
from relay.hooks import config_file
from relay.hooks.registry import Registry
from relay.hooks.trust import Trust
from relay.memory import config as memory_config
from relay.memory.config import MemoryConfig
from relay.messaging import sinks
from relay.messaging.sinks import Sinks
from relay.rules.rule_book import RuleBook
from relay.session.active_config import ActiveConfig
from relay.session.options import Options
from relay.settings import Settings

RULE_NOTICES = 3
"""Maximum number of warnings about rule files shown at the start of a session."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of a session, as read from files.

    memory:   the memory settings, or the mistake in them, which prevents saving anything anywhere.
    configs:  each relay.config.py in use.
    mistakes: what could not be used, so that what was in force before still is.
    channels: the channels to join.
    prices:   with the user's; None: those that ship with relay, which only an agent with usage needs.
    sinks:    where the items of the user's inbox go.
    notices:  what could not be used, and why, one line each.
    """

    directory: Path
    settings: Settings
    profile: Profile
    registry: Registry
    rules: RuleBook
    memory: MemoryConfig | ConfigError
    configs: tuple[config_file.ConfigFile, ...]
    mistakes: tuple[str, ...]
    channels: tuple[str, ...]
    onboarding: str
    prices: Prices | None
    sinks: Sinks
    notices: tuple[str, ...]

    @property
    def teaches(self) -> bool:
        """True if the agent gets the onboarding text; an unknown program never does."""
        return self.settings.teach == "auto" and bool(self.profile.states or self.profile.native.hooks)

    @property
    def knows_agent(self) -> bool:
        """True if relay has rules for the agent's screen; it has none for a plain program."""
        return bool(self.profile.states)

    @property
    def prefix(self) -> str:
        """The character that starts this agent's directives: from its profile, or else from the settings."""
        own = self.profile.prefix
        return own if own != PREFIX else self.settings.prefix

    def acts_on(self, namespace: str) -> bool:
        """Return True if relay acts on directives of `namespace` that the terminal shows."""
        match self.settings.directives:
            case "all":
                return True
            case "builtin":
                return self.registry.has_builtin(namespace)
        return False

    @classmethod
    def load(cls, options: Options, home: Home, directory: Path, before: ActiveConfig) -> Setup:
        """Return the configuration; skip a file with a mistake, and add a notice that says where it is.

        before: what was in force in the agent's last session, and stays in force in place of such a file.
        """
        settings, untaken = settings_file.load(home, directory, Trust(home).covers)
        notices = [*untaken]
        named = options.profile
        try:
            profile = catalog.load(named, home) if named else catalog.for_command(options.command, home)
        except ConfigError as error:
            notices += error.notices("The generic profile is used.")
            profile = catalog.fallback()
        if settings.inject == "always":
            profile = replace(profile, inject="auto", executes=())
        elif settings.inject == "never":
            profile = replace(profile, inject="never")
        registry = Registry()
        builtin.install(registry)
        memory: MemoryConfig | ConfigError | None = None
        configs: list[config_file.ConfigFile] = []
        mistakes: list[str] = []
        channels = settings.channels
        named_config = Path(options.config) if options.config else None
        choice = config_file.choose(home, directory, named_config, before.configs)
        for path in choice.paths:
            loaded, file, why = _load(choice, path, before.former(path, home), registry)
            if why is not None:
                notices.append(why)
            if file is None:
                continue
            configs.append(file)  # even if it cannot be loaded now: the next session tries again
            if why is not None:
                mistakes.append(why)
            if loaded is None:
                continue
            registry.include(loaded.registry)
            memory = loaded.memory or memory
            channels += loaded.channels
        notices += before.gone(choice.paths, home)
        memory = options.memory or memory
        if options.registry is not None:
            registry.include(options.registry)
        if memory is None:
            memory, untaken = memory_config.load(home, directory, Trust(home).covers)
            notices += untaken
        named_rules = [Path(path) for path in options.rules]
        rules = RuleBook.load(home, directory, named_rules, RuleBook.again(before.rules))
        notices += map(str, rules.warnings[:RULE_NOTICES])
        if (more := len(rules.warnings) - RULE_NOTICES) > 0:
            notices.append(f"There are {more} more warnings about rules; list them with `relay hooks list`")
        prices = None
        try:
            if (home.config / FILE).exists():
                prices = Prices.load(home)
        except RelayError as error:
            notices.append(f"{error} Costs are unknown.")
            prices = Prices("", {})
        text, notice = onboarding.read(home)
        if notice is not None:
            notices.append(notice)
        user_sinks, untaken = sinks.load(home, directory)
        notices += untaken
        return cls(
            directory,
            settings,
            profile,
            registry,
            rules,
            memory or MemoryConfig(),
            tuple(configs),
            (*mistakes, *rules.kept),
            tuple(names.channel(each) for each in channels),
            text,
            prices,
            user_sinks,
            tuple(notices),
        )


def _load(
    choice: config_file.Choice, path: Path, former: config_file.ConfigFile | None, registry: Registry
) -> tuple[config_file.Loaded | None, config_file.ConfigFile | None, str | None]:
    """Return what the relay.config.py at `path` gives, the file as it was used, and what is wrong with it.

    If not even its former content can be loaded, the latter is the file.
    """
    why = choice.untrusted.get(path) or str(choice.errors.get(path, ""))
    for file in [file for file in choice.files if file.path == path]:
        try:
            return config_file.load(file, registry), file, None
        except RelayError as error:
            why = str(error)
    if former is not None:
        try:
            return config_file.load(former, registry), former, f"{why} Its former content stays in force."
        except RelayError as error:
            return None, former, f"{why} Its former content cannot be loaded either: {error}"
    return None, None, why if path in choice.untrusted else f"{why} The session runs without it."
