"""Options that several commands have, declared once."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..learn.language import Lang

Json = Annotated[bool, Parameter(negative="", show_default=False, help="JSON output")]
Language = Annotated[Lang | None, Parameter(help="zh or en (default: from the environment)")]
Threads = Annotated[int | None, Parameter(name="--threads", help="number of threads (default: all cores)")]
