"""`clearhead doctor [RUN]`: diagnose this machine or a training run. Exit 1 if something is wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from .console import ERR, OUT, print_json
from .options import Json

if TYPE_CHECKING:
    from ..doctor import Finding

LEVEL_MARKS = {"ok": "[green]ok[/]   ", "note": "[yellow]note[/] ", "wrong": "[red]wrong[/]"}


def doctor(
    run: Annotated[
        str | None, Parameter(help="folder of a run; without it, this machine is diagnosed")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Diagnose this machine or a run: measurements, problems, and what to try.

    Exit code 0 if there are no problems or only notes, 1 if something is wrong.
    """
    from ..doctor import check_machine, check_run, is_healthy

    if run is None:
        with ERR.status("checking this machine"):
            findings = check_machine()
    else:
        findings = check_run(run)
    if json:
        print_json({"healthy": is_healthy(findings), "findings": [vars(finding) for finding in findings]})
    else:
        _print(findings)
    if not is_healthy(findings):
        sys.exit(1)


def _print(findings: list[Finding]) -> None:
    wide = max(len(finding.name) for finding in findings)
    for finding in findings:
        OUT.print(f"{LEVEL_MARKS[finding.level]}  {finding.name:<{wide}}  {escape(finding.value)}")
        if finding.advice:
            OUT.print(f"{'':<{wide + 9}}[dim]try:[/] {escape(finding.advice)}")
    wrong = sum(finding.level == "wrong" for finding in findings)
    notes = sum(finding.level == "note" for finding in findings)
    OUT.print(f"{len(findings)} checks, {wrong} wrong, {notes} worth a note")
