"""A release has a consistent version and changelog, and ways to report bugs."""

from __future__ import annotations

import re
from pathlib import Path

from relay.version import VERSION

ROOT = Path(__file__).parent.parent


def test_the_newest_version_in_the_changelog_is_the_packages() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == VERSION
    assert len(set(versions)) == len(versions)


def test_a_bug_report_asks_for_the_output_of_doctor() -> None:
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml").read_text(encoding="utf-8")
    (report,) = [part for part in form.split("  - type: ") if "id: report\n" in part]
    assert "label: Output of `relay doctor --report`" in report
    assert "render: text" in report
    assert "required: true" in report


def test_a_vulnerability_can_be_reported_privately() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a\nvulnerability*" in policy
    assert "SECURITY.md" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml").read_text(
        encoding="utf-8"
    )
