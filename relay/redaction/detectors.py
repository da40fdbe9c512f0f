"""The formats of secrets as data: what each looks like, and where its vendor documents it.

    text → anchors_in: may there be one at all? → the expressions of those formats → spans

The text may be hostile: every expression begins at a literal and repeats a bounded number of times, so its
time is linear.  A key that was cut off, by the end of a line or of a preview, is found by its beginning.
Left out on purpose: high entropy alone (commits, UUIDs and digests are not secrets), addresses, account ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial

from relay import lazy_re
from relay.dataclass import dataclass

Span = tuple[int, int]

MAX_TOKEN = 4096
"""Maximum characters of a key beyond the shortest that its expression finds."""

MAX_KEY = 16_384
"""Maximum characters of a private key, from its first line to its last."""

MAX_ROW = 512
"""Maximum characters of one row of a private key, including a frame."""

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""The beginning of a word, even after an escaped line feed, as in JSON and code."""

_MORE = lazy_re.compile(rf"[A-Za-z0-9_\-+/=]{{0,{MAX_TOKEN}}}")


# The names, types, numbers and examples that follow `password =` in code.
_PLACEHOLDER = lazy_re.compile(
    r"[<$%{\[(*&#]|@[A-Za-z{]"  # <token>, ${TOKEN}, %s, {{ token }}, [secret: ...], *pointer
    r"|(?:your|my|some|the|an?|new|old|fake|dummy|sample)[-_ ]"
    r"|(?:example|change_?me|placeholder|redacted|hidden|masked|null|none|undefined|(.)\1*)\Z"
    r"|(?:https?|file)://|[.~]{0,2}/|[A-Za-z]:\\",  # a location
    re.IGNORECASE,
)
_CODE = lazy_re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+\Z"  # settings.api_key2
    r"|[^(){}\[\]<>|]{0,512}[(){}\[\]<>|]"  # get_password(), dict[str, str]
    r"|[a-z][a-z0-9]{0,15}(?:_[a-z0-9]{1,15})+\Z"  # token_count_2
    r"|[A-Z][A-Z0-9]{0,15}(?:_[A-Z0-9]{1,15})+\Z"  # API_KEY_2
)
_EXAMPLE = lazy_re.compile(r"(?:user)?pass(?:word|wd)?\Z|secret\Z", re.IGNORECASE)
_PATH = lazy_re.compile(r"[\w.-]{1,80}(?:/[\w.-]{1,80})+\.\w{1,5}\Z")
_NUMBER = lazy_re.compile(r"[\d.,:_+/-]+[a-zA-Z%]{0,3}\Z")  # 1234, 12.5k, 10:30, 2026-01-01


@dataclass(frozen=True, slots=True)
class Format:
    """One format of secrets.

    kind:        the name in the mark that replaces the secret, such as "github-token".
    anchors:     lower-case literals, at least one of which is in every text with such a secret.
    expressions: the first group is the secret, or the whole match if there is none.
    check:       return True if a match may be a secret.
    open:        what follows without a break belongs to the secret.
    inside:      the anchors are part of a run of key characters; otherwise they may be anywhere.
    """

    kind: str
    anchors: tuple[str, ...]
    expressions: tuple[str, ...]
    check: Callable[[str], bool] = bool
    open: bool = True
    inside: bool = True


def is_drawn(value: str) -> bool:
    """Return True if `value` may be random: it holds a digit, or both upper and lower case."""
    return any(map(str.isdigit, value)) or not (value.islower() or value.isupper())


def is_written_out(value: str) -> bool:
    """Return True unless `value` is a placeholder: `$PASS`, `<password>`, `PASSWORD`, `****`."""
    return _PLACEHOLDER.match(value) is None and _EXAMPLE.match(value) is None


def is_likely(value: str, least: int, *, quoted: bool = False) -> bool:
    """Return True if `value` looks like a secret of at least `least` characters: letters and something else.

    quoted: the value was in quotes, so it is not a name in code.
    """
    if len(value) < least or _PLACEHOLDER.match(value) or _NUMBER.match(value) or _PATH.match(value):
        return False
    if not quoted and _CODE.match(value):
        return False
    letters = sum(map(str.isalpha, value))
    return 0 < letters < sum(c not in "-_. " for c in value)


def _keys(
    kind: str, *prefixes: str, of: str = r"A-Za-z0-9_\-", least: int = 10, start: str = _START
) -> Format:
    """Return a format: one of the literal `prefixes`, followed by at least `least` characters `of`."""
    beginning = "|".join(map(re.escape, prefixes))
    expression = rf"{start}(?:{beginning})[{of}]{{{least},{MAX_TOKEN}}}"
    return Format(kind, tuple(prefix.lower() for prefix in prefixes), (expression,), is_drawn)


def _assigned(kind: str, anchors: tuple[str, ...], keyword: str, least: int) -> tuple[Format, Format]:
    """Return the formats of `keyword = value` in code, settings, environments, JSON and commands.

    least: minimum characters of the value.
    """
    # Match DB_PASSWORD_PROD = ..., but neither tokens: 1234 nor token_count = 1234.
    name = rf"(?i:{keyword})(?!(?i:s\b|[-_]?(?:{_NO_SECRET})\b))[A-Za-z0-9_\-]{{0,20}}"
    is_ = r"\\?[\"']?\]?[ \t]{0,4}(?:=>|:=|[:=](?![:=]))[ \t]{0,4}"
    option = rf"--[A-Za-z\-]{{0,20}}?(?i:{keyword})[= ][ ]{{0,3}}"
    bare = r"[^\s\"'`,;&\\]"
    quoted = rf"{name}{is_}[brf@]?\\?[\"'`]([^\s\"'`\\]{{4,512}})"
    plain = (rf"{name}{is_}({bare}{{4,512}})", rf"{option}({bare}{{4,512}})")
    return (
        Format(kind, anchors, (quoted,), partial(is_likely, least=min(least, 8), quoted=True), False, False),
        Format(kind, anchors, plain, partial(is_likely, least=least), False, False),
    )


_NO_SECRET = (
    "names?|ids?|files?|paths?|types?|ur[il]s?|count|len|length|size|limit|max|min|usage|used|budget|total|per"
    "|env|ref|policy|fields?|version|expir[a-z]*|hash|manager|arn|hint|prompt|store|rotation|at|kind|format"
)
_PASSWORD = "pass(?:word|wd|phrase)|(?<![a-z])pass(?![a-z])|pwd"
_SECRET = (
    "secret(?:[-_]?(?:access[-_]?)?key)?|credential"
    "|(?:api|access|auth|private|account|service|encryption|signing|master|storage)[-_]?key"
)

FORMATS = (
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html: a prefix of four characters
    # and 16 more. A3T is undocumented, but occurs in keys.
    Format(
        "aws-key",
        ("akia", "asia", "abia", "acca", "a3t"),
        (rf"{_START}(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{{16}}",),
    ),
    # The secret key is 40 characters of base64, which could be anything: it must be quoted, after a name.
    Format(
        "aws-key",
        ("aws",),
        (r"(?i:aws[^\n]{0,20}?(?:key|token|pass|pwd?)[^\n]{0,20}?)[\"']([A-Za-z0-9/+]{40})[\"']",),
        inside=False,
    ),
    # https://learn.microsoft.com/azure/storage/common/storage-account-keys-manage: 512 bits in base64.
    Format("azure-key", ("accountkey=",), (r"AccountKey=[A-Za-z0-9+/]{86}==",)),
    # https://discord.com/developers/docs/reference#authentication: the bot's id (digits in base64 begin with
    # M, N or O), a time, a signature.  It has no prefix, so the text must mention Discord.
    Format(
        "discord-token",
        ("discord",),
        (rf"{_START}[MNO][A-Za-z0-9_\-]{{22,26}}\.[A-Za-z0-9_\-]{{6}}\.[A-Za-z0-9_\-]{{27,64}}",),
        inside=False,
    ),
    # https://docs.gitlab.com/security/tokens/#token-prefixes
    _keys("gitlab-token", "glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glimt-", "GR1348941"),
    # https://mailchimp.com/developer/marketing/docs/fundamentals/: 128 bits in hex, and a data center.
    Format("mailchimp-key", ("-us",), (rf"{_START}[0-9a-f]{{32}}-us[0-9]{{1,2}}",)),
    # https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys: 69 characters in three parts.
    Format("sendgrid-key", ("sg.",), (rf"{_START}SG\.[A-Za-z0-9_\-]{{22}}\.[A-Za-z0-9_\-]{{43}}",)),
    # https://api.slack.com/authentication/token-types, https://api.slack.com/messaging/webhooks
    _keys("slack-token", "xoxa-", "xoxb-", "xoxc-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
    Format(
        "slack-token", ("hooks.slack.com",), (r"https://hooks\.slack\.com/services/[A-Za-z0-9_/]{20,128}",)
    ),
    # https://developer.squareup.com/docs/build-basics/access-tokens: an application's secret.
    _keys("square-token", "sq0csp-"),
    # https://docs.stripe.com/keys
    _keys("stripe-key", "sk_live_", "rk_live_"),
    _keys("anthropic-key", "sk-ant-"),
    _keys("openai-key", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-"),
    _keys("openai-key", "sk-", of="A-Za-z0-9", least=20),
    # https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/; also
    # in the middle of a word.
    _keys("github-token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", start=""),
    _keys("google-key", "AIza", "GOCSPX-", "ya29."),
    _keys("huggingface-token", "hf_", of="A-Za-z0-9"),
    _keys("npm-token", "npm_", of="A-Za-z0-9"),
    # https://pypi.org/help/#apitoken; a macaroon begins with the byte 2, in base64 with Ag.
    _keys("pypi-token", "pypi-Ag"),
    _keys(
        "service-token",
        *("xapp-", "xoxe.", "xoxe-"),  # Slack
        *("sk_test_", "rk_test_", "whsec_"),  # Stripe
        *("glcbt-", "glptt-", "glagent-", "gloas-"),  # GitLab
        *("dckr_pat_", "dop_v1_", "shpat_", "shpss_"),  # Docker, DigitalOcean, Shopify
        *("figd_", "lin_api_", "AKCp", "gsk_", "xai-"),  # Figma, Linear, Artifactory, Groq, xAI
        *("nvapi-", "pplx-", "hvs.", "tskey-", "sbp_"),  # NVIDIA, Perplexity, Vault, Tailscale, Supabase
        *("sntrys_", "glc_", "ntn_", "AGE-SECRET-KEY-"),  # Sentry, Grafana Cloud, Notion, age
        *("ATATT3", "glsa_", "NRAK-", "r8_", "nfp_"),  # Atlassian, Grafana, New Relic, Replicate, Netlify
        *("fo1_", "fm1_", "fm2_"),  # Fly
        least=16,
    ),
    # Databricks, Pulumi, Twilio and Mailgun: a short prefix, and a number in hex.
    # https://docs.databricks.com/dev-tools/auth/pat.html, https://www.pulumi.com/docs/administration/access-identity/access-tokens/
    # https://www.twilio.com/docs/iam/api-keys, https://documentation.mailgun.com/docs/mailgun/user-manual/api-key-mgmt/
    Format(
        "service-token",
        ("dapi", "pul-", "sk", "key-"),
        (
            rf"{_START}(?:dapi[0-9a-f]{{32}}(?:-\d)?|pul-[0-9a-f]{{40}}|SK[0-9a-f]{{32}})(?![A-Za-z0-9])",
            r"(?<![A-Za-z0-9_\-])key-[0-9a-f]{32}(?![A-Za-z0-9])",
        ),
        open=False,
    ),
    # https://cloud.google.com/iam/docs/keys-create-delete: the key beside it is a private key.
    Format(
        "google-key",
        ("private_key_id",),
        (r"private_key_id\\?[\"'][ ]{0,2}:[ ]{0,2}\\?[\"']([0-9a-f]{40})",),
        open=False,
        inside=False,
    ),
    # https://core.telegram.org/bots/api#authorizing-your-bot
    Format("telegram-token", (":a",), (r"(?<!\d)\d{8,10}:A[A-Za-z0-9_\-]{34}",)),
    # RFC 7519: base64 of a JSON object, which begins with {"
    Format(
        "json-web-token",
        ("eyj",),
        (rf"{_START}eyJ[A-Za-z0-9_\-]{{8,2048}}\.[A-Za-z0-9_\-=]{{8,4096}}(?:\.[\w\-=]{{0,2048}}){{0,3}}",),
    ),
    # RFC 6750
    Format(
        "authorization",
        ("bearer",),
        (r"(?i:bearer)[ \t]{1,4}([A-Za-z0-9._~+/=\-]{16,2048})",),
        is_drawn,
        inside=False,
    ),
    # RFC 9110, section 11.6.2, and headers that vendors use in its place
    Format(
        "authorization",
        ("authorization", "api-key", "auth-token"),
        (
            r"(?i:authorization|x-api-key|api-key|auth-token)[\"']?[ ]{0,2}[:=][ ]{0,2}[\"']?"
            r"(?:(?i:basic|token|digest|apikey|key)[ ]{1,2})?([A-Za-z0-9._~+/=\-]{12,2048})",
        ),
        partial(is_likely, least=12),
        inside=False,
    ),
    # The registries in Docker's config.json: base64 of user:password.
    Format(
        "authorization",
        ('auth"', 'auth\\"'),
        (r"[\"]auth\\?\"[ ]{0,2}:[ ]{0,2}\\?\"([A-Za-z0-9+/=]{8,4096})",),
        is_drawn,
        inside=False,
    ),
    # RFC 6265: login cookies, by their names.
    Format(
        "cookie",
        ("cookie",),
        (
            r"(?<![A-Za-z0-9_.\-])[A-Za-z0-9_.\-]{0,24}(?i:sess|sid|auth)[A-Za-z0-9_.\-]{0,16}"
            r"=(?!eyJ)([A-Za-z0-9%._~+/\-]{16,2048})",
        ),
        partial(is_likely, least=16, quoted=True),
        inside=False,
    ),
    # Passwords in commands: curl(1), mysql(1), sshpass(1).
    Format(
        "password",
        ("curl", "mysql", "mariadb", "sshpass"),
        (
            r"curl\b[^\n]{0,256}?[ ](?:-u|--user)[ =]{0,2}[\"']?[^\s:\"']{1,128}:([^\s\"']{1,256})",
            r"(?:mysql|mariadb)[a-z\-]{0,12}\b[^\n]{0,256}?[ ]-p[\"']?([^\s\"']{1,256})",
            r"sshpass[ ]{1,3}-p[ ]{0,3}[\"']?([^\s\"']{1,256})",
        ),
        is_written_out,
        open=False,
        inside=False,
    ),
    # https://www.gnu.org/software/inetutils/manual/html_node/The-_002enetrc-file.html
    Format(
        "password",
        ("login",),
        (
            r"(?:machine\s{1,4}\S{1,253}|default)\s{1,4}login\s{1,4}\S{1,128}\s{1,4}password\s{1,4}(\S{1,256})",
        ),
        is_written_out,
        open=False,
        inside=False,
    ),
    # RFC 3986, section 3.2.1
    Format(
        "url-password",
        ("://",),
        (r"://[^\s/:@\"'<>]{0,128}:([^\s/@\"'<>]{1,256})@[\w\[]",),
        is_written_out,
        open=False,
        inside=False,
    ),
    *_assigned("password", ("pass", "pwd"), _PASSWORD, 6),
    *_assigned("secret", ("secret", "key", "credential"), _SECRET, 12),
    *_assigned("token", ("token",), "token", 16),
)
"""All formats but that of private keys, which `private_keys` finds."""

_BESIDE = {"private key", *(anchor for each in FORMATS if not each.inside for anchor in each.anchors)}
_INSIDE = frozenset(anchor for each in FORMATS if each.inside for anchor in each.anchors) - _BESIDE
_RUN = lazy_re.compile(r"[a-z0-9_\-.:=/]{13,}")


def anchors_in(text: str) -> frozenset[str]:
    """Return the anchors in `text`. Ordinary text has few runs that are long enough to be a key."""
    low = text.lower()
    found = [anchor for anchor in _BESIDE if anchor in low]
    if runs := _RUN.findall(low):
        joined = " ".join(runs)
        found += [anchor for anchor in _INSIDE if anchor in joined]
    return frozenset(found)


def scan(text: str, start: int, end: int, anchors: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, kind) of the secrets in text[start:end], in which `anchors` were found."""
    for format in _formats_with(anchors):
        for expression in format.expressions:
            for match in _compiled(expression).finditer(text, start, end):
                first, last = match.span(match.lastindex or 0)
                if not format.check(text[first:last]):
                    continue
                if format.open and (more := _MORE.match(text, last)) is not None:
                    last = more.end()
                yield first, last, format.kind


@lru_cache(maxsize=256)
def _formats_with(anchors: frozenset[str]) -> list[Format]:
    return [format for format in FORMATS if not anchors.isdisjoint(format.anchors)]


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)  # takes up to a millisecond, and most formats never occur


_HEADER = lazy_re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_FOOTER = "-----END "
_LAST_LINE = lazy_re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BETWEEN = r"(?:\s|\\[nr]|[\"'|>│+]|\d{1,5}(?=[ \t→|│:])[ \t→|│:]){0,12}"
"""Between two rows of a key: frames, quotes, diff marks, line numbers."""
_BODY = (
    r"[ \t|│]*\n[ \t|│>]{0,12}[A-Za-z0-9+/=]{1,15}[ \t|│]*(?:\n|\Z)"  # its first row, partly drawn
    rf"|(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,128}}"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{1,15}}(?=[ \t|│]*(?:\n|\Z)))?){{1,400}}"
)
_BEHIND = r"[ \t\r|│┃█░]*"
"""After a row: frames and scroll bars."""
_ROW = rf"{_BETWEEN}[A-Za-z0-9+/=]{{16,128}}{_BEHIND}"
_SHORT_ROW = rf"{_BETWEEN}[A-Za-z0-9+/=]{{1,128}}{_BEHIND}"


def private_keys(text: str) -> Iterator[Span]:
    """Yield the spans between the first and last lines of private keys; one of the two may be missing."""
    position = 0
    footer = -1
    yield from _ends(text)
    while (header := _HEADER.search(text, position)) is not None:
        first = position = header.end()
        if footer < first and (footer := text.find(_FOOTER, first)) < 0:
            footer = len(text) + MAX_KEY + 1  # none is left
        if footer - first <= MAX_KEY:
            position = footer
            yield first, footer
        elif (body := _compiled(_BODY).match(text, first)) is not None:
            position = body.end()
            yield first, position


def _ends(text: str) -> Iterator[Span]:
    """Yield the rows before each last line of a private key, whose first rows may be missing."""
    for match in _LAST_LINE.finditer(text):
        end = start = text.rfind("\n", max(match.start() - MAX_ROW, 0), match.start())
        while start > 0:
            before = text.rfind("\n", max(start - MAX_ROW, 0), start)
            expression = _SHORT_ROW if start == end else _ROW
            if _compiled(expression).fullmatch(text, before + 1, start) is None or end - before > MAX_KEY:
                break
            start = before
        if start < end and _compiled(_ROW).fullmatch(text, start + 1, text.find("\n", start + 1)):
            yield start + 1, end
