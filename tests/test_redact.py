"""Redaction removes keys of known formats, leaves ordinary logs unchanged, and is fast on hostile lines."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from pathlib import Path

import pytest

from relay.redaction import MAX_KNOWN, OVERLAP, SEGMENT, Redactor, redact
from support import LONG

# ruff: noqa: E501 (lines of logs)
# Keys are assembled from parts, so that no scanner reports this file as a leak.
_RANDOM = random.Random(44)

find = Redactor().find


def random_key(length: int, alphabet: str = "") -> str:
    """Return random characters like a key's, with a digit, a lower- and an upper-case letter."""
    alphabet = alphabet or "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return ("a7Q" + "".join(_RANDOM.choices(alphabet, k=length)))[:length]


def random_hex(length: int) -> str:
    return ("a7" + "".join(_RANDOM.choices("0123456789abcdef", k=length)))[:length]


def random_upper(length: int) -> str:
    return "".join(_RANDOM.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=length))


def jwt_part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


JWT = ".".join(
    [jwt_part({"alg": "HS256", "typ": "JWT"}), jwt_part({"sub": "1234567890", "admin": True}), random_key(43)]
)
BODY = "\n".join(random_key(64) for _ in range(12))

# id: (a line, the part that must be removed, the kind in the mark)
KEYS: dict[str, tuple[str, str, str]] = {}


def _key(name: str, kind: str, secret: str, line: str = "{}") -> None:
    KEYS[name] = (line.replace("{}", secret), secret, kind)


_key("aws access key id", "aws-key", "AK" + "IA" + random_upper(16), "AWS_ACCESS_KEY_ID={}")
_key("aws session key id", "aws-key", "AS" + "IA" + random_upper(16), "found {} in the log")
_key("aws secret", "secret", random_key(40), "AWS_SECRET_ACCESS_KEY={}")
_key("aws secret in a file", "secret", random_key(20) + "/" + random_key(19), "aws_secret_access_key = {}")
_key("azure storage", "azure-key", random_key(86) + "==", "AccountName=x;Account" + "Key={};Endpoint=y")
_key(
    "discord",
    "discord-token",
    "M" + random_key(23) + "." + random_key(6) + "." + random_key(27),
    "discord bot {} up",
)
_key("github classic", "github-token", "gh" + "p_" + random_key(36))
_key("github actions", "github-token", "gh" + "s_" + random_key(36), "token {}.")
_key("github oauth", "github-token", "gh" + "o_" + random_key(36), "x-access-token:{}")
_key("github fine-grained", "github-token", "github" + "_pat_" + random_key(22) + "_" + random_key(59))
_key("github in a url", "github-token", "gh" + "p_" + random_key(36), "https://{}@github.com/x/y.git")
_key("github after an escape", "github-token", "gh" + "p_" + random_key(36), r'{"text": "first\n{}\tlast"}')
_key("gitlab personal", "gitlab-token", "gl" + "pat-" + random_key(20))
_key("gitlab routable", "gitlab-token", "gl" + "pat-" + random_key(60))
_key("gitlab pipeline", "service-token", "gl" + "cbt-64_" + random_key(20))
_key("mailchimp", "mailchimp-key", random_hex(32) + "-us12", "key {} used")
_key("sendgrid", "sendgrid-key", "S" + "G." + random_key(22) + "." + random_key(43))
_key("slack bot", "slack-token", "xo" + "xb-123456789012-1234567890123-" + random_key(24))
_key("slack user", "slack-token", "xo" + "xp-" + random_key(60))
_key(
    "slack webhook",
    "slack-token",
    "https://hooks."
    + "slack.com/services/T"
    + random_upper(8)
    + "/B"
    + random_upper(8)
    + "/"
    + random_key(24),
)
_key("square", "square-token", "sq0" + "csp-" + random_key(43))
_key("stripe", "stripe-key", "sk_" + "live_" + random_key(24))
_key("stripe long", "stripe-key", "rk_" + "live_" + random_key(99))
_key("anthropic", "anthropic-key", "sk-" + "ant-api03-" + random_key(93) + "AA")
_key("anthropic cut off", "anthropic-key", "sk-" + "ant-oat01-" + random_key(9))
_key("openai project", "openai-key", "sk-" + "proj-" + random_key(74) + "T3Blbk" + "FJ" + random_key(74))
_key("openai legacy", "openai-key", "sk-" + random_key(20) + "T3Blbk" + "FJ" + random_key(20))
_key("openrouter", "openai-key", "sk-" + "or-v1-" + random_hex(64))
_key("deepseek", "openai-key", "sk-" + random_hex(32), '"key":"{}"')
_key("google", "google-key", "AI" + "za" + random_key(35))
_key("google oauth", "google-key", "ya" + "29." + random_key(60))
_key("google client", "google-key", "GOC" + "SPX-" + random_key(28))
_key("hugging face", "huggingface-token", "h" + "f_" + random_key(34))
_key("npm", "npm-token", "np" + "m_" + random_key(36), "//registry.npmjs.org/:_authToken={}")
_key("npm legacy", "token", str(uuid.UUID(random_hex(32))), "//registry.npmjs.org/:_authToken={}")
_key("pypi", "pypi-token", "py" + "pi-AgEIcHlwaS5vcmc" + random_key(120))
_key("digitalocean", "service-token", "dop" + "_v1_" + random_hex(64))
_key("docker", "service-token", "dckr" + "_pat_" + random_key(27))
_key("groq", "service-token", "gs" + "k_" + random_key(52))
_key("vault", "service-token", "hv" + "s." + random_key(90))
_key("telegram", "telegram-token", "123456789:A" + "A" + random_key(33), "bot{}/getMe")
_key("jwt", "json-web-token", JWT, "cookie session={}; path=/")
_key("bearer", "authorization", random_key(40), "Authorization: Bearer {}")
_key("bearer in json", "authorization", random_key(40), '{"Authorization": "Bearer {}"}'.replace("{}", "{}"))
_key("basic", "authorization", base64.b64encode(b"user:s3cretpass").decode(), "> authorization: Basic {}")
_key("header", "authorization", random_key(32), "x-api-key: {}")
_key("curl", "authorization", random_key(32), "curl -H 'X-Api-Key: {}' https://api.example.org")
_key("postgres url", "url-password", "hunter" + "2!x", "postgres://app:{}@db.example.org:5432/app")
_key("mqtt url", "url-password", "letters" + "only", "mqtts://alice:{}@broker.example.org")
_key("redis url", "url-password", "p%40ss" + "w0rd", "redis://:{}@localhost:6379/0")
_key("password env", "password", "hunter" + "2", "DB_PASSWORD={}")
_key("password prod", "password", "s3cr3t" + "-value", "export DB_PASSWORD_PROD={}")
_key("password yaml", "password", "corr3ct-" + "horse", "password: {}")
_key("password json", "password", "T0p" + "secret!", '{"user": "a", "password": "{}"}')
_key("password escaped json", "password", "T0p" + "secret!", r'"{\"password\": \"{}\"}"')
_key("password code", "password", "T0p" + "secret!", "PASSWORD = '{}'")
_key("password option", "password", "T0p" + "secret!", "mysql --user root --password {} db")
_key("password option =", "password", "T0p" + "secret!", "mysql --password={} db")
_key("password dict", "password", "T0p" + "secret!", "config['db_password'] = \"{}\"")
_key("pgpassword", "password", "T0p" + "secret!", "PGPASSWORD={} psql")
_key("api key", "secret", random_key(24), 'api_key: "{}"')
_key("api key env", "secret", random_key(32), "MISTRAL_API_KEY={}")
_key("apiKey", "secret", random_key(32), 'const apiKey = "{}";')
_key("client secret", "secret", random_key(32), "client_secret={}&grant_type=x")
_key("hash rocket", "secret", random_key(32), ":secret_key_base => '{}'")
_key("go", "secret", random_key(32), 'secretKey := "{}"')
_key("access token", "token", random_key(32), '"access_token": "{}"')
_key("token query", "token", random_key(32), "GET /v1?token={}&page=2")
_key(
    "atlassian", "service-token", "ATA" + "TT3xFfGF0" + random_key(40) + "-_" + random_key(120) + "=2A1B3C4D"
)
_key("databricks", "service-token", "da" + "pi" + random_hex(32), "DATABRICKS={} dbx")
_key("databricks numbered", "service-token", "da" + "pi" + random_hex(32) + "-3")
_key("grafana", "service-token", "gl" + "sa_" + random_key(32) + "_" + random_hex(8))
_key("new relic", "service-token", "NR" + "AK-" + random_upper(27))
_key("mailgun", "service-token", "ke" + "y-" + random_hex(32), "mailgun: {}")
_key("twilio", "service-token", "S" + "K" + random_hex(32), "twilio {} used")
_key("replicate", "service-token", "r8" + "_" + random_key(37))
_key("pulumi", "service-token", "pu" + "l-" + random_hex(40))
_key("netlify", "service-token", "nf" + "p_" + random_key(36))
_key("fly", "service-token", "fo" + "1_" + random_key(43))
_key("fly macaroon", "service-token", "fm" + "2_" + random_key(200), "FlyV1 {}")
_key("google key id", "google-key", random_hex(40), '"private_key_id": "{}",')
_key("google key id escaped", "google-key", random_hex(40), r"{\"private_key_id\": \"{}\"}")
_key("curl user", "password", "hunter" + "2", "curl -s -u alice:{} https://example.org")
_key("curl user quoted", "password", "hunter" + "2", "curl --user 'alice:{}' https://example.org")
_key("mysql password", "password", "hunter" + "2", "mysql -u root -p{} shop")
_key("mysqldump password", "password", "hunter" + "2", "mysqldump -h db -p'{}' shop")
_key("sshpass", "password", "hunter" + "2", "sshpass -p {} ssh host")
_key("session cookie", "cookie", random_key(32), "Cookie: theme=dark; sessionid={}; lang=en")
_key("set cookie", "cookie", random_key(40), "Set-Cookie: connect.sid={}; HttpOnly")
_key(
    "docker auth",
    "authorization",
    base64.b64encode(b"user:s3cretpass").decode(),
    '"auths": {"x": {"auth": "{}"}}',
)
_key("netrc", "password", "hunter" + "2", "machine example.org login alice password {}")
_key("netrc in lines", "password", "hunter" + "2", "machine example.org\n  login alice\n  password {}")
_key("token env", "token", random_key(40), "CIRCLE_TOKEN={}")


def test_keys_of_known_formats_are_removed(subtests: pytest.Subtests) -> None:
    """R44"""
    for name in KEYS:
        with subtests.test(name):
            line, secret, kind = KEYS[name]
            clean = redact(f"before {line} after")
            assert secret not in clean
            assert f"[secret: {kind}]" in clean
            assert clean.startswith("before ") and clean.endswith(" after")
            assert redact(clean) == clean
            [found] = find(line)
            assert secret in line[found.start : found.end]
            assert len(secret) + 60 > found.end - found.start


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY"])
def test_the_body_of_a_private_key_is_removed(kind: str) -> None:
    """R44: the surrounding lines stay."""
    first, last = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    for text in (
        f"$ cat key\n{first}\n{BODY}\n{last}\n$ ",
        json.dumps({"private_key": f"{first}\n{BODY}\n{last}\n"}),
        f"$ head key\n{first}\n{BODY}\n$ ",
        f"{first}\n{BODY}",
    ):
        clean = redact(text)
        assert first in clean
        assert not any(line in clean for line in BODY.split("\n"))
        assert clean.endswith(text.split(BODY.split("\n")[-1])[-1][-2:])


SHA = hashlib.sha1(b"x").hexdigest()
SHA256 = hashlib.sha256(b"x").hexdigest()
UUID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"

ORDINARY = {
    "git log": f"commit {SHA} (HEAD -> main)\nAuthor: A <a@example.org>\n\n    Rotate tokens and passwords",
    "git log oneline": f"{SHA[:7]} Keep the password prompt open\n{SHA[:12]} token: say how many are left",
    "git diff": f"index {SHA[:7]}..{SHA[8:15]} 100644\n--- a/token.py\n+++ b/token.py",
    "uuid": f"session {UUID} started; session_id={UUID}",
    "npm": f'"integrity": "sha512-{base64.b64encode(hashlib.sha512(b"x").digest()).decode()}"',
    "npm lock": '"resolved": "https://registry.npmjs.org/@babel/core/-/core-7.24.0.tgz",',
    "npm output": "npm_config_registry npm_lifecycle_event npm_package_version=1.0.0",
    "pip": f"aiohttp==3.9.1 --hash=sha256:{SHA256}",
    "pip download": "Downloading detect_secrets-1.5.0-py3-none-any.whl (120 kB) ━━━━ 120.3/120.3 kB 8.5 MB/s",
    "docker": f"python@sha256:{SHA256}\n => exporting layers 0.3s\n => writing image sha256:{SHA256}",
    "genes": "ATTGTTACCATTTTCCCGGGAAATTTACGT",
    "base64 image": "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8).decode(),
    "traceback": "Traceback (most recent call last):\n  File \"/app/token.py\", line 12, in get_token\nKeyError: 'password'",
    "path": "/home/me/.config/app/secret_keys/key-2024.pem and ./tokens/token1.json",
    "code that reads": "password = getpass.getpass()\ntoken = os.environ['GITHUB_TOKEN']\nsecret = load_secret(path)",
    "code with types": "def login(password: str, token: Token1 | None = None, api_key: Optional[str] = None) -> None:",
    "code with names": "self.token = token2\nsecret_key = settings.secret_key2\npassword = self._password1",
    "typescript": "const token: Token2 = tokens[0]; password?: string; apiKey: process.env.OPENAI_API_KEY2",
    "shell": "TOKEN=$GITHUB_TOKEN2 API_KEY=${API_KEY:-x1} PASSWORD=$(pass show db1) cmd --token-file=/run/token1",
    "yaml": "secretName: db-credentials\npasswordSecretRef:\n  name: app\n  key: password",
    "counts": "tokens: 1234  max_tokens=4096 token_count: 12.5k total_tokens: 99 (tokens: 15,000)",
    "usage": "Token usage: total=123,456 input=100,000 (+ 20,000 cached) output=3,456",
    "placeholders": "password=<your-password> token=**** api_key=YOUR_API_KEY secret: changeme password: [secret: password]",
    "prose": "The password must have 8 characters. Set the API key: see https://example.org/docs/keys1.",
    "url": "https://example.org:8443/a/b?page=2&key=name#frag and http://localhost:3000/@user and git@github.com:a/b",
    "url with user": "ssh://git@github.com/a/b.git",
    "url with a variable": "postgres://app:$PASSWORD@db/app, https://<user>:<password>@host",
    "key=value": "key=value monkey=banana2024 keyboard=us-intl1 primary_key=12345 foreign_key: user_id",
    "json": '{"event": "notice", "key": "ctrl+c", "keys": ["a"], "token_type": "bearer", "expires_in": 3600}',
    "schema": '{"password": {"type": "string"}, "token": "string", "secret": "required"}',
    "journal": json.dumps(
        {"time": 1760000000.5, "event": "injection", "session": SHA[:32], "id": random_hex(16)}
    ),
    "http": 'HTTP/1.1 401 Unauthorized\nWWW-Authenticate: Bearer realm="x"\nAuthorization: required',
    "prose of formats": "Keys begin with sk-ant-, ghp_, AIza or hf_; hf_hub_download is a function; scikit: sk-learn.",
    "tasks": "task-1234567890abcdef1234 disk-usage risk-assessment-of-everything-2024",
    "words": "APDescription ACcount SKeleton passage compass passenger passthrough=1a2b3c4d bypass: on1off2",
    "tests": "tests/test_password.py::test_token_is_refused PASSED [ 12%]",
    "ls": "-rw------- 1 me me 1679 Jan  1 10:00 id_rsa\n-rw-r--r-- 1 me me 400 Jan  1 10:00 id_rsa.pub",
    "public key": "ssh-ed25519 " + base64.b64encode(bytes(51)).decode() + " me@host",
    "header only": "The file begins with -----BEGIN RSA PRIVATE KEY----- and is not shown.",
    "times": "12345678:abcdef 2026-01-01T10:00:00Z 1700000000:0;ls",
    "names like formats": f"ATATT1 dapis dapi-server glsa NRAK r8_ release pul-request nfp_ fo1_ {SHA[:12]} SK{SHA[:12]}",
    "digests beside names": f"cache-key-{SHA256[:32]} pull-{SHA} api-{SHA256[:32]} TASK{SHA256[:32]} key_{SHA256[:32]}",
    "commands with -p and -u": "mkdir -p build/a1; docker run -u 1000:1000 -p 80:80 x; ssh -p 2222 h; mysql -p shop; mysql -P 3306",
    "commands with variables": "curl -u alice:$PASS https://x; mysql -p$PASS; sshpass -p <password> ssh h; curl -u alice https://x",
    "cookies": "Set-Cookie: theme=dark-mode-with-blue-links; Path=/ Cookie: consent=accepted-on-2026-01-01; document.cookie",
    "login": "The machine login page: password reset. machine learning login and password",
    "json auth": '{"auth": "none", "auth": "required", "private_key_id": "key-1", "auth": {"type": "basic"}}',
    "relay": f"@relay:Bob the token test is done [relay a1b2 from Alice] {UUID[:8]} relay-501/default/Alice.sock",
    "css": "--token-color-1: #a1b2c3; --password-field: 12px;",
    "rust": 'let token = Token::new("x"); match secret { Secret::Key(k) => k }',
    "words with dashes": "password: not-set, secret = some-value, token: per-user-and-host",
}


def test_the_end_of_a_private_key_is_removed() -> None:
    """R44: `tail`, or an agent that hides the start of a command's output, shows only the end."""
    rows = [random_key(64) for _ in range(4)] + [random_key(20)]
    last = "-----END RSA PRIVATE " + "KEY-----"
    for frame in ("{}", "│   {}   │", "  12 {}", "    {}      █"):
        text = "\n".join(
            ["... first lines hidden ...", *(frame.format(row) for row in rows), frame.format(last)]
        )
        covered = redact(text)
        assert not any(row in covered for row in rows), covered
        assert "hidden" in covered and last in covered
    assert redact(f"a sentence\nthat ends in {last}") == f"a sentence\nthat ends in {last}"
    assert redact(f"word\n{last}\n" * 2) == f"word\n{last}\n" * 2


def test_a_private_key_without_its_end_is_removed_up_to_the_last_row() -> None:
    """R44"""
    first = "-----BEGIN PRIVATE " + "KEY-----"
    rows = [random_key(64), random_key(64), random_key(9)]
    text = "\n".join([first, *rows, "$ make test", "an ordinary line"])
    covered = redact(text)
    assert not any(row in covered for row in rows)
    assert covered.endswith("\n$ make test\nan ordinary line")
    diff = "\n".join(f"+{line}" for line in (first, *rows[:2]))
    assert not any(row in redact(diff) for row in rows)


def test_ordinary_logs_are_unchanged(subtests: pytest.Subtests) -> None:
    """R44"""
    for name in ORDINARY:
        with subtests.test(name):
            text = ORDINARY[name]
            assert redact(text) == text, [text[s.start : s.end] for s in find(text)]


@pytest.mark.parametrize(
    "name", ["github classic", "square", "password json", "postgres url", "jwt", "bearer"]
)
def test_secrets_anywhere_in_a_long_line_are_removed(name: str) -> None:
    """R44: the line is scanned in segments, and a secret may span two."""
    line, secret, kind = KEYS[name]
    for at in range(SEGMENT - OVERLAP - 200, SEGMENT + 200, 7):
        clean = redact("." * at + f" {line} " + "." * 5000)
        assert clean.count(f"[secret: {kind}]") == 1
        assert secret not in clean


def test_keys_longer_than_their_format_are_removed_whole() -> None:
    """R44: services may lengthen their keys."""
    key = "sq0" + "csp-" + random_key(43)
    assert redact(f"{key}{random_key(20)} end") == "[secret: square-token] end"


def test_a_secret_within_another_is_removed_with_it() -> None:
    redactor = Redactor(("s3cretinside",))
    text = "it is ghp_0123456789s3cretinside0123456789abcdefgh, and more"
    assert redactor.redact(text) == "it is [secret: github-token], and more"


def test_configured_values_are_never_forgotten() -> None:
    """R44: otherwise an agent could print keys until relay forgot the user's."""
    redactor = Redactor(["swordfish-77"])
    for number in range(MAX_KNOWN + 1):
        redactor.learn(f"{number:012}", "token")
    redactor.learn("swordfish-77" + "x" * 40, "token")
    assert redactor.redact("it is swordfish-77.") == "it is [secret: known]."


def test_learned_values_do_not_displace_others() -> None:
    """R44: a value typed character by character is stored once, not a hundred times."""
    redactor = Redactor(["first-value-9"])
    long = random_key(300)
    for length in range(8, 300):
        redactor.learn(long[:length], "token")
    assert redactor.redact(f"first-value-9 and {long}") == f"[secret: known] and [secret: token]{long[299:]}"
    for number in range(1000):
        redactor.learn(f"{number:03} and {number:03}", "token")
    assert redactor.redact("000 and 000, 999 and 999") == "000 and 000, [secret: token]"


def test_known_values_with_a_common_prefix_are_removed_completely() -> None:
    """R44: the text may end within one."""
    redactor = Redactor(["swordfish-77", "swordfish-78-and-more", "swordfish", "swordfi#"])
    for text in ("swordfish-77", "swordfish-78-and-mo", "swordfish", "swordfi#", "swordfis"):
        assert redactor.redact(f"({text})") == "([secret: known])", text
    assert redactor.redact("swordfiz swordfish-79") == "swordfiz [secret: known]9"


def test_many_known_values_with_a_common_prefix_are_fast() -> None:
    """R44: an agent may print many such values, and then a text that consists of their prefixes.

    Code that is a hundred times slower times out.
    """
    redactor = Redactor()
    for number in range(MAX_KNOWN):
        redactor.learn(f"abababab{number:05}", "token")
    assert redactor.redact("ab" * (1 << 20)).startswith("[secret: token]")


@pytest.mark.parametrize(
    "hostile",
    ["a", "password=", "://x:", "eyJ", "sk-ant-", "aws key '", "xoxb-1-", "-----BEGIN PRIVATE KEY-----"],
)
def test_much_text_on_one_line_takes_linear_time(hostile: str) -> None:
    """R44: quadratic code times out."""
    text = hostile * ((1 << 20 if LONG else 1 << 19) // len(hostile))
    assert len(redact(text)) <= len(text)


def test_relays_own_sources_are_unchanged() -> None:
    """R44: they mention tokens and passwords often."""
    sources = list((Path(__file__).parents[1] / "relay").rglob("*.py"))
    assert len(sources) > 100
    found = {
        f"{path.name}: {text[s.start : s.end]}"
        for path in sources
        if path.name != "detectors.py"  # its patterns look like what they match
        for text in [path.read_text()]
        for s in find(text)
    }
    assert not found
