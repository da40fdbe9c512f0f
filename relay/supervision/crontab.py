"""cron: the crontab line that starts a fleet at boot, where there is no service manager (crontab(5))."""

from __future__ import annotations

import shlex

from relay.supervision.boot_service import BootService


def reboot_line(service: BootService) -> str:
    """Return the crontab line. cron itself reads `%` as a newline, and passes the rest to sh."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in service.environment.items()]
    return "@reboot " + " ".join([*variables, shlex.join(service.command)]).replace("%", r"\%")
