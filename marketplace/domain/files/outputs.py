"""What of a work's folder is kept when it ended: patterns of paths inside it.

`out/` or `out`: that file, or that folder with all that is in it. `*` and `?` stand for what a name
has there, `[ab]` for one of these, and `**` for any folders, also none: `*.pt`, `runs/*/best.pt`,
`**/*.log`. A folder that a pattern meets is taken whole. The agent of a host reads them
(`metering/agent/files/outputs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.refusal import Invalid
from marketplace.domain.files.manifest import PathUnsafe, need_path

OUTPUTS_MAX = 32
OUTPUT_LENGTH_MAX = 256


class OutputsUnreadable(Invalid):
    """Outputs are up to 32 patterns of paths inside the work's folder, such as `out/` or `*.pt`.

    Each is relative, up to 256 characters long, without `..`, backslashes and control characters.
    """


def need_outputs(patterns: Sequence[str]) -> None:
    """Refuse patterns that are too many or lead out of the work's folder.

    Raises: OutputsUnreadable.
    """
    if len(patterns) > OUTPUTS_MAX:
        raise OutputsUnreadable(outputs=len(patterns), outputs_max=OUTPUTS_MAX)
    for pattern in patterns:
        try:
            need_path(pattern.removesuffix("/"))
        except PathUnsafe:
            raise OutputsUnreadable(output=repr(pattern)[:OUTPUT_LENGTH_MAX]) from None
        if len(pattern) > OUTPUT_LENGTH_MAX:
            raise OutputsUnreadable(output=repr(pattern)[:OUTPUT_LENGTH_MAX])
