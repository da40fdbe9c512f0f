"""What a text holds, in lower case, where it holds a secret: one of these at least, for each kind.

They are looked for before any expression is tried, and before the library of expressions is imported.  Those
of keys are parts of the keys; in ordinary text few runs of characters are long enough to be one.
"""

from __future__ import annotations

import re

ANCHORS: dict[str, tuple[str, ...]] = {
    # The library's.
    "aws-key": ("akia", "asia", "abia", "acca", "a3t", "aws"),
    "azure-key": ("accountkey=",),
    "discord-token": ("discord",),
    "gitlab-token": ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-"),
    "mailchimp-key": ("-us",),
    "sendgrid-key": ("sg.",),
    "slack-token": ("xox", "hooks.slack.com"),
    "square-token": ("sq0csp-",),
    "stripe-key": ("k_live_",),
    # Our own.
    "anthropic-key": ("sk-ant-",),
    "openai-key": ("sk-",),
    "github-token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "google-key": ("aiza", "ya29.", "gocspx-"),
    "huggingface-token": ("hf_",),
    "npm-token": ("npm_",),
    "pypi-token": ("pypi-ag",),
    "service-token": (
        *(
            "xapp-",
            "xoxe",
            "k_test_",
            "whsec_",
            "glcbt-",
            "glptt-",
            "glagent-",
            "gloas-",
            "gl1-",
            "dckr_pat_",
        ),
        *(
            "dop_v1_",
            "shpat_",
            "shpss_",
            "figd_",
            "lin_api_",
            "akcp",
            "gsk_",
            "xai-",
            "nvapi-",
            "pplx-",
            "hvs.",
        ),
        *("tskey-", "sbp_", "sntrys_", "glc_", "ntn_", "age-secret-key-"),
    ),
    "telegram-token": (":a",),
    "json-web-token": ("eyj",),
    "authorization": ("bearer", "authorization", "api-key", "auth-token"),
    "url-password": ("://",),
    "password": ("pass", "pwd"),
    "secret": ("secret", "key", "credential"),
    "token": ("token",),
    "private-key": ("private key",),
}


_BESIDE = frozenset(
    anchor
    for kind in ("authorization", "url-password", "password", "secret", "token", "private-key")
    for anchor in ANCHORS[kind]
) | {"aws", "discord"}
_WITHIN = frozenset(anchor for anchors in ANCHORS.values() for anchor in anchors) - _BESIDE
_RUN = re.compile(r"[a-z0-9_\-.:=/]{13,}")


def anchors_in(text: str) -> frozenset[str]:
    """The anchors in `text`."""
    low = text.lower()
    found = [anchor for anchor in _BESIDE if anchor in low]
    if runs := _RUN.findall(low):
        joined = " ".join(runs)
        found += [anchor for anchor in _WITHIN if anchor in joined]
    return frozenset(found)
