"""A Mosquitto with the access list and passwords that relay writes, on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

import debian
from support import wait_until


class GuardedMosquitto:
    """acl, passwords: the contents of the files; None: no such file and no restrictions.

    extra: further configuration lines.
    """

    def __init__(
        self, directory: Path, acl: str | None, passwords: str | None, extra: str = "", *, tls: bool = False
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"mqtt{'s' if tls else ''}://127.0.0.1:{self.port}"
        lines = [f"listener {self.port} 127.0.0.1", f"log_dest file {directory}/log", extra]
        if os.getuid() == 0:
            lines.append("user root")  # otherwise it runs as a user who cannot read the files
        for setting, file, text in (("acl_file", "acl", acl), ("password_file", "passwords", passwords)):
            if text is not None:
                path = directory / file
                path.write_text(text)
                path.chmod(0o600)
                lines.append(f"{setting} {path}")
        lines.append(f"allow_anonymous {'true' if passwords is None else 'false'}")
        config = directory / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        self._process = subprocess.Popen([debian.require("mosquitto"), "-c", config])
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "mosquitto ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def __enter__(self) -> GuardedMosquitto:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def make_certificate(directory: Path, *, host: str = "IP:127.0.0.1", days: int = 2) -> None:
    """Write a self-signed certificate for `host` to cert.pem and key.pem in `directory`; needs openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH, and connections with TLS were not tested")
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", str(days), "-subj", "/CN=relay", "-addext", f"subjectAltName={host}"),
            *("-keyout", directory / "key.pem", "-out", directory / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
