"""What `leap doctor` prints, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import click
import msgspec

from leap_features.settings import Settings
from leap_streams.doctor import examine
from leap_streams.doctor_finding import AREAS, Finding, Severity, worst
from leap_streams.doctor_gather import gather

ENDS_WELL: Final[frozenset[Severity]] = frozenset({"ok", "note"})
COLOURS: Final[Mapping[Severity, str]] = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}


def run_doctor(settings: Settings, *, records: int, as_json: bool) -> None:
    """`leap doctor`; ends the process with status 1 if there is a warning or an error."""
    findings = examine(gather(settings, records=records))
    if as_json:
        report = {"worst": worst(findings), "findings": findings}
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        for line in lines(findings):
            click.echo(line)  # without colours, unless into a terminal
    if worst(findings) not in ENDS_WELL:
        raise click.exceptions.Exit(1)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The report: findings by area; the last line counts them."""
    for area, group in groupby(sorted(findings, key=lambda finding: AREAS.index(_area(finding))), key=_area):
        yield click.style(area, bold=True)
        for finding in group:
            severity = click.style(f"{finding.severity:<7}", fg=COLOURS[finding.severity])
            yield f"  {severity}  {finding.check.partition('.')[2]}: {finding.found}"
            if finding.rule:
                yield f"           rule: {finding.rule}"
            if finding.mend:
                yield f"           mend: {finding.mend}"
    counts = Counter(finding.severity for finding in findings)
    yield f"errors {counts['error']}, warnings {counts['warning']}, notes {counts['note']}, ok {counts['ok']}"


def _area(finding: Finding) -> str:
    return finding.check.partition(".")[0]
