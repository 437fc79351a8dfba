"""`clearhead certify FOLDER`: verify a checkpoint. Exit 1 if anything fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .console import ERR, OUT, print_json, table
from .opening import adapted
from .options import NO_ADAPTER, AdapterOptions, Json, ModelName, Set, edits

if TYPE_CHECKING:
    from ..certify import Certificate, CertificateRow


def certify(
    folder: ModelName,
    *,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    json: Json = False,
    full: Annotated[
        bool, Parameter(negative="", help="show every layer, not only the worst of each check")
    ] = False,
) -> None:
    """Compare every layer with transformers, where it is installed, and check five invariances.

    A model with an adapter is compared with PEFT.
    """
    from ..certify import certify as certify_folder

    with ERR.status("certifying"):
        model, adapter = adapted(folder, over)
        certificate = certify_folder(model, edits(set_), **adapter)
    if json:
        rows = [{**vars(row), "passed": row.passed} for row in certificate.rows]
        verdict = {"passed": certificate.passed, "verdict": certificate.verdict}
        print_json({**vars(certificate), "rows": rows, **verdict})
    else:
        _print(certificate, full=full)
    if not certificate.passed:
        sys.exit(1)


def _print(certificate: Certificate, *, full: bool) -> None:
    OUT.print(f"[bold]{certificate.family}[/] · {certificate.parameters:,} parameters")
    OUT.print(certificate.verdict, markup=False)
    listing = table("", "check", "where", "apart", "allowed", right=(3, 4))
    for row in certificate.rows if full else _worst(certificate.rows):
        mark = "[green]ok[/]" if row.passed else "[red]FAIL[/]"
        listing.add_row(mark, row.check, row.what, f"{row.apart:.1e}", f"{row.limit:.0e}")
    OUT.print(listing)
    failed = sum(not row.passed for row in certificate.rows)
    shown = "" if full else " (shown: the worst of each kind; --full shows all)"
    OUT.print(f"{len(certificate.rows)} checks, {failed} failed{shown}")


def _worst(rows: tuple[CertificateRow, ...]) -> list[CertificateRow]:
    """The worst layer of each kind, and every invariance."""
    kinds = {row.check for row in rows if row.check != "invariance"}
    worst = [max((r for r in rows if r.check == kind), key=lambda r: r.apart) for kind in sorted(kinds)]
    return worst + [row for row in rows if row.check == "invariance"]
