"""The formats of secrets: those of detect-secrets that hold in logs, and our own beside them.

Left out of the library's: the entropy plugins (commits, UUIDs and digests are no secrets), addresses and the
account ids of Twilio; Keyword, BasicAuth, Npm, OpenAI, Jwt, IBM's, Cloudant's and SoftLayer's, whose
expressions take quadratic time on hostile lines, and which ours stand in for; Artifactory, which finds
"APDescription"; PrivateKey, which finds the header and not the key.

Our expressions begin at a literal and repeat at most so many times, so that their time is linear.  A key that
was cut off, by the end of a line or of a preview, is found by its beginning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType

from relay.redaction.anchors import ANCHORS
from relay.redaction.likely import is_drawn, is_likely, is_written_out

_stand_in = None if "requests" in sys.modules else ModuleType("requests")
if _stand_in is not None:
    # The library imports it (10 MB, 50 ms) to ask services whether a secret is in force, which we never do.
    # importlib.util.LazyLoader is no help: Python 3.11's own import statement makes such a module load.
    sys.modules["requests"] = _stand_in
try:
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector
finally:
    if sys.modules.get("requests") is _stand_in:
        sys.modules.pop("requests", None)

Span = tuple[int, int]

MAX_TOKEN = 4096
"""Characters by which a key may be longer than the shortest that its expression finds."""

MAX_KEY = 16_384
"""Characters of a private key, from its first line to its last."""

MAX_ROW = 512
"""Characters of one row of it, with a frame."""

MIN_GROUP = 16
"""Characters of a group of the library's expressions that is the secret; a shorter one is its prefix."""

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""Where a word begins, also after a line feed as JSON and code write it."""

_MORE = re.compile(rf"[A-Za-z0-9_\-+/=]{{0,{MAX_TOKEN}}}")


class Detector(RegexBasedDetector):
    """A kind of secret, found by expressions: their group is the secret, or all that they match.

    check: what the secret has to be besides. open: what follows without a break belongs to it.
    """

    secret_type = "Secret"  # the library wants one; DETECTORS says of which kind it is
    denylist: Sequence[re.Pattern[str]] = ()

    def __init__(self, *expressions: str, check: Callable[[str], bool] = bool, open: bool = True) -> None:
        self.denylist = tuple(re.compile(expression) for expression in expressions)
        self.check = check
        self.open = open


def _prefixed(*prefixes: str, of: str = r"A-Za-z0-9_\-", least: int = 10, word: bool = True) -> Detector:
    """Keys that begin with one of `prefixes` (expressions), of which `least` characters follow at least.

    word: they are no keys in the middle of a word.
    """
    expression = rf"{_START if word else ''}(?:{'|'.join(prefixes)})[{of}]{{{least},{MAX_TOKEN}}}"
    return Detector(expression, check=is_drawn)


def _assigned(keyword: str, least: int) -> tuple[Detector, Detector]:
    """`keyword = value` in code, settings, environments, JSON and commands; `least` characters of value."""
    # Neither tokens: 1234 nor token_count = 1234, but DB_PASSWORD_PROD = ...
    name = rf"(?i:{keyword})(?!(?i:s\b|[-_]?(?:{_NO_SECRET})\b))[A-Za-z0-9_\-]{{0,20}}"
    is_ = r"\\?[\"']?\]?[ \t]{0,4}(?:=>|:=|[:=](?![:=]))[ \t]{0,4}"
    option = rf"--[A-Za-z\-]{{0,20}}?(?i:{keyword})[= ][ ]{{0,3}}"
    bare = r"[^\s\"'`,;&\\]"
    return (
        Detector(
            rf"{name}{is_}[brf@]?\\?[\"'`]([^\s\"'`\\]{{4,512}})",
            check=partial(is_likely, least=min(least, 8), quoted=True),
            open=False,
        ),
        Detector(
            rf"{name}{is_}({bare}{{4,512}})",
            rf"{option}({bare}{{4,512}})",
            check=partial(is_likely, least=least),
            open=False,
        ),
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

DETECTORS: dict[str, tuple[RegexBasedDetector, ...]] = {
    "aws-key": (AWSKeyDetector(),),
    "azure-key": (AzureStorageKeyDetector(),),
    "discord-token": (DiscordBotTokenDetector(),),
    "gitlab-token": (GitLabTokenDetector(), _prefixed("glpat-", "gldt-", "glft-", "glsoat-", "glrt-")),
    "mailchimp-key": (MailchimpDetector(),),
    "sendgrid-key": (SendGridDetector(),),
    "slack-token": (SlackDetector(), _prefixed("xox[abceoprs]-")),
    "square-token": (SquareOAuthDetector(),),
    "stripe-key": (StripeDetector(), _prefixed("[sr]k_live_")),
    "anthropic-key": (_prefixed("sk-ant-"),),
    "openai-key": (
        _prefixed("sk-(?:proj|svcacct|admin|or-v1)-"),
        _prefixed("sk-", of="A-Za-z0-9", least=20),
    ),
    "github-token": (_prefixed("gh[pousr]_", "github_pat_", word=False),),
    "google-key": (_prefixed("AIza", "GOCSPX-", r"ya29\."),),
    "huggingface-token": (_prefixed("hf_", of="A-Za-z0-9"),),
    "npm-token": (_prefixed("npm_", of="A-Za-z0-9"),),
    "pypi-token": (_prefixed("pypi-Ag"),),
    "service-token": (
        _prefixed(
            *(
                "xapp-",
                "xoxe[.-]",
                "[sr]k_test_",
                "whsec_",
                "gl(?:cbt|ptt|agent|oas)-",
                "dckr_pat_",
                "dop_v1_",
            ),
            *(
                "shp(?:at|ss)_",
                "figd_",
                "lin_api_",
                "AKCp",
                "gsk_",
                "xai-",
                "nvapi-",
                "pplx-",
                r"hvs\.",
                "tskey-",
            ),
            *("sbp_", "sntrys_", "glc_", "ntn_", "AGE-SECRET-KEY-"),
            least=16,
        ),
    ),
    "telegram-token": (Detector(r"(?<!\d)\d{8,10}:A[A-Za-z0-9_\-]{34}"),),
    "json-web-token": (
        Detector(
            _START + r"eyJ[A-Za-z0-9_\-]{8,2048}\.[A-Za-z0-9_\-=]{8,4096}(?:\.[\w\-=]{0,2048}){0,3}",
        ),
    ),
    "authorization": (
        Detector(r"(?i:bearer)[ \t]{1,4}([A-Za-z0-9._~+/=\-]{16,2048})", check=is_drawn),
        Detector(
            r"(?i:authorization|x-api-key|api-key|auth-token)[\"']?[ ]{0,2}[:=][ ]{0,2}[\"']?"
            r"(?:(?i:basic|token|digest|apikey|key)[ ]{1,2})?([A-Za-z0-9._~+/=\-]{12,2048})",
            check=partial(is_likely, least=12),
        ),
    ),
    "url-password": (
        Detector(r"://[^\s/:@\"'<>]{0,128}:([^\s/@\"'<>]{1,256})@[\w\[]", check=is_written_out, open=False),
    ),
    "password": _assigned(_PASSWORD, 6),
    "secret": _assigned(_SECRET, 12),
    "token": _assigned("token", 16),
}
"""Kinds of secrets, and what finds them; a private key is found by `private_keys`."""


def scan(text: str, start: int, end: int, anchors: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """(start, end, kind) of the secrets in text[start:end], in which are `anchors`."""
    for kind, detectors in DETECTORS.items():
        if anchors.isdisjoint(ANCHORS[kind]):
            continue
        for detector in detectors:
            for first, last in _spans(detector, text, start, end):
                yield first, last, kind


def _spans(detector: RegexBasedDetector, text: str, start: int, end: int) -> Iterator[Span]:
    ours = detector if isinstance(detector, Detector) else None
    for expression in detector.denylist:
        for match in expression.finditer(text, start, end):
            first, last = _secret(match, any_group=ours is not None)
            if ours is None:
                if first and text[first - 1].isalnum():
                    continue  # the middle of something else, such as "...GATTACCA..."
            elif not ours.check(text[first:last]):
                continue
            if ours is None or ours.open:
                more = _MORE.match(text, last)
                last = last if more is None else more.end()
            yield first, last


def _secret(match: re.Match[str], *, any_group: bool) -> Span:
    for group in range(1, (match.re.groups or 0) + 1):
        first, last = match.span(group)
        if last - first >= (1 if any_group else MIN_GROUP):
            return first, last
    return match.span()


_HEADER = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_FOOTER = "-----END "
_LAST_LINE = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BETWEEN = r"(?:\s|\\[nr]|[\"'|>│+]|\d{1,5}(?=[ \t→|│:])[ \t→|│:]){0,12}"
"""Between two rows of a key: frames, quotes, the marks of a comparison, the numbers of rows."""
_BODY = re.compile(
    r"[ \t|│]*\n[ \t|│>]{0,12}[A-Za-z0-9+/=]{1,15}[ \t|│]*(?:\n|\Z)"  # its first row, as far as it is drawn
    rf"|(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,128}}"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{1,15}}(?=[ \t|│]*(?:\n|\Z)))?){{1,400}}"
)


_ROW = re.compile(rf"{_BETWEEN}[A-Za-z0-9+/=]{{16,128}}[ \t\r|│]*")
_SHORT_ROW = re.compile(rf"{_BETWEEN}[A-Za-z0-9+/=]{{1,128}}[ \t\r|│]*")


def private_keys(text: str) -> Iterator[Span]:
    """What is between the first and the last line of each private key; one of the two may be missing."""
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
        elif (body := _BODY.match(text, first)) is not None:
            position = body.end()
            yield first, position


def _ends(text: str) -> Iterator[Span]:
    """The rows before each last line of a private key, of which the first rows may not be there."""
    for match in _LAST_LINE.finditer(text):
        end = start = text.rfind("\n", max(match.start() - MAX_ROW, 0), match.start())
        while start > 0:
            before = text.rfind("\n", max(start - MAX_ROW, 0), start)
            expression = _SHORT_ROW if start == end else _ROW
            if expression.fullmatch(text, before + 1, start) is None or end - before > MAX_KEY:
                break
            start = before
        if start < end and _ROW.fullmatch(text, start + 1, text.find("\n", start + 1)):
            yield start + 1, end
