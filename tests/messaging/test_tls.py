"""TLS to a broker is verified: certificate errors are explained, and an impostor gets no password."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from pathlib import Path

import pytest

from guarded import GuardedMosquitto, make_certificate
from relay.transport import acl
from relay.transport.credentials import Credentials, Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.probe import probe
from relay.transport.probe_result import CLAIMS, Finding

AGENTS = [
    Credentials("default", "alice", "a"),
    Credentials("default", "bob", "b"),
    Credentials("web", "eve", "e"),
]


def encrypted_mosquitto(directory: Path) -> GuardedMosquitto:
    extra = f"certfile {directory}/cert.pem\nkeyfile {directory}/key.pem"
    rights = acl.mosquitto(AGENTS), acl.mosquitto_passwords(AGENTS)
    return GuardedMosquitto(directory, *rights, extra, tls=True)


def connect(url: str) -> None:
    async def scenario() -> None:
        alice = AGENTS[0]
        transport = MqttTransport(
            Endpoint.of(url), Login("test", keep=False, user=alice.user, password=alice.password)
        )
        await transport.connect()
        transport.close()

    asyncio.run(scenario())


def write_expired_certificate(directory: Path) -> None:
    """Write a certificate that expired in the year 2000; only `openssl ca` can set a past date."""
    make_certificate(directory)
    (directory / "index").touch()
    (directory / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=it\n[it]\ndatabase={directory}/index\nnew_certs_dir={directory}\n"
        "rand_serial=yes\npolicy=any\ndefault_md=sha256\nx509_extensions=names\n"
        "[any]\ncommonName=optional\n[names]\nsubjectAltName=IP:127.0.0.1\n"
    )
    new = ("openssl", "req", "-new", "-key", "key.pem", "-subj", "/CN=relay", "-out", "request.pem")
    sign = ("openssl", "ca", "-batch", "-config", "ca.cnf", "-selfsign", "-keyfile", "key.pem")
    dates = ("-startdate", "20000101000000Z", "-enddate", "20000102000000Z")
    for command in (new, (*sign, *dates, "-in", "request.pem", "-out", "cert.pem", "-notext")):
        subprocess.run(command, cwd=directory, check=True, capture_output=True)


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")  # paho's, after a refusal
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("self-signed", "self-signed certificate"),
        ("another host's", "not valid for '127.0.0.1'"),
        ("expired", "certificate has expired"),
    ],
)
def test_an_invalid_certificate_is_rejected_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    if kind == "expired" and shutil.which("openssl") is not None:
        write_expired_certificate(tmp_path)
    else:
        make_certificate(tmp_path, host="DNS:other.example" if kind == "another host's" else "IP:127.0.0.1")
    if kind != "self-signed":
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    with encrypted_mosquitto(tmp_path) as mosquitto:
        with pytest.raises(ConnectionLost, match="was rejected") as refused:
            connect(mosquitto.url)
        found = {row.key: row for row in asyncio.run(probe([Endpoint.of(mosquitto.url)], AGENTS))}
        assert found["reach"].status is Finding.HOLDS
        assert found["tls"].status is Finding.BROKEN
        assert reason in found["tls"].detail
        assert "default/alice" not in (tmp_path / "log").read_text(), "it never got as far as a login"
    assert reason in str(refused.value)
    assert "SSL_CERT_FILE" in str(refused.value)
    del refused  # its frames hold the socket
    gc.collect()  # while the warning is still ignored


def test_a_private_authority_is_trusted_when_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    with encrypted_mosquitto(tmp_path) as mosquitto:
        connect(mosquitto.url)
        rows = asyncio.run(probe([Endpoint.of(mosquitto.url)], AGENTS, native=1))
    assert {row.key: row.status for row in rows} == dict.fromkeys(CLAIMS, Finding.HOLDS), rows
    assert "certificate verified" in next(row.detail for row in rows if row.key == "tls")
