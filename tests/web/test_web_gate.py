"""What relay web refuses, whatever is asked for. Raw sockets send what a browser would not."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from session.fake_agent import events
from session.test_session_guard import Mallory
from support import PATIENCE, Relay, wait_until
from web.running import WebServer, serving

pytestmark = pytest.mark.shared_home

READS = ("agents", "inbox", "messages", "usage", "recordings", "fleet", "events", "agents/Alice/question")
CHANGES = ("messages", "agents/Alice/answer", "agents/Alice/stop", "agents/Alice/control", "inbox/1/done")


def test_only_its_own_names_are_served(web: WebServer, subtests: pytest.Subtests) -> None:
    """A name that resolves to this machine, such as 127.0.0.1.nip.io, is another page's (DNS rebinding)."""
    own = f"127.0.0.1:{web.port}"
    for path in ("/", "/api/agents"):
        for hosts, served in (
            ([own], True),
            ([f"localhost:{web.port}"], True),
            ([f"LocalHost:{web.port}"], True),
            ([], False),
            ([own, own], False),
            ([own, "evil.example"], False),
            ([f"127.0.0.1.nip.io:{web.port}"], False),
            ([f"evil.example:{web.port}"], False),
            (["127.0.0.1"], False),
            (["localhost:80"], False),
            ([f"localhost.:{web.port}"], False),
            ([f"user@{own}"], False),
            ([f"[::1]:{web.port}"], False),
            ([""], False),
        ):
            with subtests.test(path=path, hosts=hosts):
                lines = [f"Host: {host}" for host in hosts]
                answer = web.raw(f"GET {path} HTTP/1.1", *lines, f"Cookie: {web.cookie}")
                assert answer.startswith(b"HTTP/1.1 200 ") is served
                assert served or re.match(rb"HTTP/1.1 40[03] ", answer)
        with subtests.test("HTTP/1.0 without a name", path=path):
            assert web.raw(f"GET {path} HTTP/1.0", f"Cookie: {web.cookie}").startswith(b"HTTP/1.1 403 ")
        with subtests.test("absolute form", path=path):
            for target in (f"http://{own}{path}", "http://evil.example/", "*", f"//evil.example{path}"):
                answer = web.raw(f"GET {target} HTTP/1.1", f"Host: {own}", f"Cookie: {web.cookie}")
                assert re.match(rb"HTTP/1.1 40[0134] ", answer), target


def test_a_page_of_another_server_gets_nothing(web: WebServer, subtests: pytest.Subtests) -> None:
    others = (f"http://127.0.0.1:{web.port + 1}", "http://localhost", "https://127.0.0.1", "null", "", "*")
    localhost = f"http://localhost:{web.port}"
    for origin in (*others, localhost, f"{web.origin}.evil.example", f"https://127.0.0.1:{web.port}"):
        with subtests.test(origin=origin):
            assert web.get("/api/agents", Origin=origin).status == 403
            assert web.get("/", Origin=origin).status == 403
            assert web.post("/api/messages", {"to": "Nobody", "text": "x"}, Origin=origin).status == 403
            assert "access-control-allow-origin" not in web.get("/api/agents", Origin=origin).headers
    for site in ("cross-site", "same-site"):
        with subtests.test(site=site):
            assert web.get("/api/agents", Sec_Fetch_Site=site).status == 403
    with subtests.test("its own"):
        assert web.get("/api/agents", Origin=web.origin).status == 200
        assert web.get("/api/agents", Sec_Fetch_Site="same-origin").status == 200
        assert web.get("/api/agents", Host=f"localhost:{web.port}", Origin=localhost).status == 200
    with subtests.test("two"):
        lines = [f"Host: 127.0.0.1:{web.port}", f"Origin: {web.origin}", f"Cookie: {web.cookie}"]
        assert web.raw("GET /api/agents HTTP/1.1", *lines).startswith(b"HTTP/1.1 200 ")
        answer = web.raw("GET /api/agents HTTP/1.1", *lines, "Origin: http://evil.example")
        assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_change_must_look_like_the_pages_own(web: WebServer, subtests: pytest.Subtests) -> None:
    for header, value, status in (
        ("Origin", None, 403),
        ("X-Relay", "true", 403),
        ("Content-Type", None, 415),
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "application/x-www-form-urlencoded", 415),
        ("Content-Type", "application/json, text/plain", 415),
        ("Cookie", None, 401),
    ):
        with subtests.test(header=header, value=value):
            assert web.post("/api/messages", {}, **{header: value}).status == status
    for path in CHANGES:
        with subtests.test(path=path):
            assert web.post(f"/api/{path}", {}, **{"X-Relay": None}).status == 403
    for method in ("PUT", "PATCH", "OPTIONS", "BREW"):
        with subtests.test(method=method):
            assert web.request(method, "/api/messages", {}, web.changes).status == 405
    with subtests.test("a change by GET"):
        assert web.request("GET", "/api/agents/Alice/stop", None, web.changes).status in {404, 405}


def test_everything_but_the_page_itself_needs_the_cookie(web: WebServer, subtests: pytest.Subtests) -> None:
    name, _, value = web.cookie.partition("=")
    for path in READS:
        with subtests.test(path=path):
            assert web.get(f"/api/{path}", Cookie=None).status == 401
    for cookie in ("", f"{name}=", f"{name}={value[:-1]}", f"{name}={value}x", f"relay={value}"):
        with subtests.test(cookie=cookie):
            assert web.get("/api/agents", Cookie=cookie).status == 401
    with subtests.test("logging out"):
        assert web.request("DELETE", "/api/session", None, {**web.changes, "Cookie": None}).status == 401
    with subtests.test("beside those of other servers, which browsers send, too"):
        others = f'a="b; {name}2=x; =; {{}}; {web.cookie}; z'
        assert web.get("/api/agents", Cookie=others).status == 200
    with subtests.test("the page"):
        assert web.get("/", Cookie=None).status == 200


def test_the_cookie_is_kept_from_scripts_and_other_sites(web: WebServer) -> None:
    token = web.new_url().partition("#")[2]
    header = web.post("/api/session", {"token": token}, Cookie=None).headers["set-cookie"]
    value, *attributes = header.split("; ")
    assert {each.lower() for each in attributes} == {"httponly", "path=/", "samesite=strict"}
    name, _, secret = value.partition("=")
    assert name == web.cookie.partition("=")[0] != "relay"
    assert len(secret) == 43  # 256 bits


def test_a_token_works_once(web: WebServer, subtests: pytest.Subtests) -> None:
    first, second = (web.new_url().partition("#")[2] for _ in range(2))
    assert len(second) == 43  # 256 bits
    with subtests.test("not the one before"):
        assert web.post("/api/session", {"token": first}, Cookie=None).status == 403
    with subtests.test("in nothing but the body"):
        assert web.get(f"/api/agents?token={second}", Cookie=None).status == 401
        assert web.post(f"/api/session?token={second}", {}, Cookie=None).status == 400
    assert web.post("/api/session", {"token": second}, Cookie=None).status == 204
    assert web.post("/api/session", {"token": second}, Cookie=None).status == 403


def test_five_wrong_tokens_lock_the_right_one_out(relay: Relay) -> None:
    server = WebServer(relay)
    try:
        token = server.url.partition("#")[2]
        tries = [server.post("/api/session", {"token": f"{token}{n}"}).status for n in range(6)]
        assert tries == [403] * 5 + [429]
        assert server.post("/api/session", {"token": token}).status == 429
    finally:
        server.end()


def test_every_answer_has_the_headers(web: WebServer, subtests: pytest.Subtests) -> None:
    answers = {
        "page": web.get("/"),
        "api": web.get("/api/agents"),
        "nothing": web.get("/nothing"),
        "no path": web.get("/api/nothing"),
        "mistake": web.get("/api/agents/Nobody/question"),
        "refused": web.get("/api/agents", Origin="http://evil.example"),
        "logged out": web.get("/api/agents", Cookie=None),
    }
    for what, answer in answers.items():
        with subtests.test(what):
            policy = answer.headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy}
            assert not any("unsafe" in each or "*" in each or "http" in each for each in policy)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in answer.headers
    with subtests.test("the API's answers are not kept"):
        assert answers["api"].headers["cache-control"] == "no-store"


def test_a_request_has_a_size(web: WebServer, subtests: pytest.Subtests) -> None:
    lines = [f"{name}: {value}" for name, value in web.changes.items()]
    start = ["POST /api/messages HTTP/1.1", f"Host: 127.0.0.1:{web.port}", *lines]
    for length in ("262145", "99999999999999999999", "-1", "1e3"):
        with subtests.test(length=length):
            assert re.match(rb"HTTP/1.1 4(00|13) ", web.raw(*start, f"Content-Length: {length}"))
    with subtests.test("in chunks"):
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        answer = web.raw(*start, "Transfer-Encoding: chunked", body=chunk * 4 + b"1\r\nx\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
    with subtests.test("head"), socket.create_connection(("127.0.0.1", web.port), PATIENCE) as channel:
        channel.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        assert channel.recv(100).startswith(b"HTTP/1.1 400 ")
    with subtests.test("what is no JSON object"):
        for body in (b"", b"[]", b"1", b"{", b"[" * 50_000, b"\xff"):
            answer = web.post("/api/messages", body)
            assert (answer.status, answer.json["type"]) == (400, "UsageError")


def test_what_holds_many_connections_open_keeps_nobody_out(web: WebServer) -> None:
    with ExitStack() as held:
        for _ in range(200):
            channel = held.enter_context(socket.socket())
            channel.settimeout(PATIENCE)
            channel.connect(("127.0.0.1", web.port))
            channel.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert web.get("/api/agents").status == 200


def test_paths_are_ids(web: WebServer, subtests: pytest.Subtests) -> None:
    secret = web.relay.home / "secret.txt"
    secret.write_text("a secret")
    for path in (
        f"/api/recordings/{secret}",
        "/api/recordings/../../../etc/passwd",
        "/api/recordings/..%2f..%2fetc%2fpasswd",
        "/api/agents/..%2f..%2fetc%2fpasswd/logs",
        f"/{secret}",
        "/../../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/secret.txt",
    ):
        with subtests.test(path=path):
            lines = [f"Host: 127.0.0.1:{web.port}", f"Cookie: {web.cookie}"]
            answer = web.raw(f"GET {path} HTTP/1.1", *lines)
            assert re.match(rb"HTTP/1.1 40[04] ", answer)
            assert b"a secret" not in answer
            assert b"root:" not in answer


ASK = """
import http.client, json, sys
_, port, asked, token, cookie = sys.argv
origin = f"http://127.0.0.1:{port}"
headers = {"Origin": origin, "X-Relay": "1", "Content-Type": "application/json", "Cookie": cookie}
for method, path in json.loads(asked):
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request(method, path, json.dumps({"token": token}) if method == "POST" else None, headers)
    answer = connection.getresponse()
    print(answer.status, method, path, answer.read()[:300].decode())
"""


def asking(web: WebServer, *asked: tuple[str, str], token: str = "") -> list[str]:
    """Return the command line of a program that asks as the page does, with the page's own cookie."""
    return [sys.executable, "-S", "-c", ASK, str(web.port), json.dumps(asked), token, web.cookie]


def test_an_agents_process_gets_the_page_and_nothing_else(web: WebServer, subtests: pytest.Subtests) -> None:
    """Even with the user's own cookie, and the token."""
    mallory = Mallory(web.relay, "Mallory").wrap()
    token = web.new_url().partition("#")[2]
    everything = [
        *(("GET", f"/api/{each}") for each in READS),
        *(("POST", f"/api/{each}") for each in CHANGES),
        ("POST", "/api/session"),
        ("DELETE", "/api/session"),
    ]
    lines = mallory.run(shlex.join(asking(web, *everything, token=token))).stdout.splitlines()
    assert len(lines) == len(everything)
    for line in lines:
        with subtests.test(line):
            assert re.match(
                "403 .*an agent may not use relay web. This descends from .* belongs to Mallory", line
            )
    with subtests.test("the page"):
        assert mallory.run(shlex.join(asking(web, ("GET", "/")))).stdout.startswith("200 ")
    with subtests.test("by a daemon"):
        line = shlex.join(asking(web, ("GET", "/api/agents")))
        mallory.run(f"setsid sh -c {shlex.quote(f'{line} > out &')}")
        out = web.relay.home / "out"
        wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
        assert out.read_text().startswith("403 ")
    with subtests.test("in the journal"):
        refused = [each for each in events(web.relay, "refused") if each.get("operation") == "web"]
        assert {each["name"] for each in refused} == {"Mallory"}
    with subtests.test("it starts no server"):
        run = mallory.run(shlex.join([*web.relay.command, "web", "--no-browser"]))
        assert (run.returncode, run.stdout) == (1, "")
        assert "an agent may not start relay web" in run.stderr
    assert web.post("/api/session", {"token": token}, Cookie=None).status == 204  # it was not used up
    ours = subprocess.run(asking(web, ("GET", "/api/agents")), capture_output=True, text=True, check=True)
    assert ours.stdout.startswith("200 ")


def test_no_secret_is_written_down(web: WebServer) -> None:
    """Neither in a file of the home, nor on a command line, nor in what the server prints later."""
    token = web.new_url().partition("#")[2]
    assert web.post("/api/session", {"token": token}, Cookie=None).status == 204
    web.post("/api/session", {"token": token}, Cookie=None)
    web.get("/api/agents")
    for secret in (token, web.cookie.partition("=")[2]):
        for file in web.relay.home.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert secret.encode() not in line.read_bytes()
            except OSError:
                pass  # it has ended
        assert secret.encode() not in web.get("/").body


def test_it_ends_quietly(relay: Relay, subtests: pytest.Subtests) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with subtests.test(number.name), serving(relay) as server:
            assert server.end(number) == (128 + number, "")


def test_a_port_in_use_is_an_error(web: WebServer) -> None:
    run = web.relay("web", "--no-browser", "--port", str(web.port), check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert f"cannot listen on port {web.port}: Address already in use. Choose another one" in run.stderr


def test_the_browser_gets_a_token_of_its_own(relay: Relay) -> None:
    """Others see its command line, so only the user's own processes may use it: relay.web.access."""
    opener = relay.home / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" > {relay.home}/part\nmv {relay.home}/part {relay.home}/opened\n')
    opener.chmod(0o755)
    path = f"{opener.parent}:{relay.environment['PATH']}"
    server = WebServer(relay, env={"DISPLAY": ":9", "PATH": path}, browser=True)
    try:
        opened = relay.home / "opened"
        wait_until(opened.exists)
        url = opened.read_text().strip()
        assert url.startswith(f"{server.origin}/#")
        assert url != server.url
        server.log_in(url)
        server.log_in(server.url)
        assert server.post("/api/session", {"token": url.partition("#")[2]}).status == 403
    finally:
        server.end()


def test_pairing_prints_a_code_for_a_phone(relay: Relay) -> None:
    with serving(relay, "--pair") as server:
        _, err = server.end()
        assert "█" in server.printed
        assert f"ssh -L {server.port}:127.0.0.1:{server.port} HOST" in err
