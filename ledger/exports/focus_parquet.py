"""FOCUS rows as Parquet: decimals as decimals (128 bits, 12 places), moments as moments in UTC.

Rows are gathered into groups, and each is written once it is full, so memory stays the same however
many there are. Quantities, which the CSV has to 18 places, are rounded half up to 12: price times
quantity still gives the cost back to within what the specification allows.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from ledger.domain.periods import Period
from ledger.exports import focus
from ledger.exports.charges import Charge

if TYPE_CHECKING:
    import pyarrow

GROUP = 4_096
"""Rows of a row group."""
DIGITS, PLACES = 38, 12
WHOLE = ("x_GpuMilliseconds", "x_EnergyMillijoules")
DECIMALS = ("Cost", "Price", "Quantity")
MOMENTS = ("PeriodStart", "PeriodEnd")

WRITER = f"pyarrow {version('pyarrow')}"
"""Another version of it may write other bytes for the same rows."""

Cells = dict[str, list[str | None]]


def parts(charges: Iterable[Charge], *, period: Period, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield the file, piece by piece."""
    # Only whoever writes such a file loads it: 60 MB.
    import pyarrow
    import pyarrow.parquet

    # Arrow's own pool keeps what was freed: tens of megabytes that nobody uses again.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    out = _Out()
    schema = pyarrow.schema([(name, _type(name)) for name in columns])
    with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _groups(charges):
            arrays = _arrays(group, period, columns)
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield out.taken()
    yield out.taken()


def _groups(charges: Iterable[Charge]) -> Iterator[list[Charge]]:
    group: list[Charge] = []
    for charge in charges:
        group.append(charge)
        if len(group) == GROUP:
            yield group
            group = []
    if group:
        yield group


def _arrays(group: Sequence[Charge], period: Period, columns: Sequence[str]) -> list[pyarrow.Array]:
    """Return the columns of a group: shared parts once, then repeated; own parts row by row."""
    import pyarrow

    since = period.window.starts_at
    known: dict[Hashable, int] = {}
    shared: list[focus.Row] = []
    index: list[int] = []
    own: list[focus.Row] = []
    for charge in group:
        key = focus.shared_key(charge, since)
        number = known.setdefault(key, len(shared))
        if number == len(shared):
            shared.append(focus.shared_part(charge, period=period))
        index.append(number)
        own.append(focus.own_part(charge))
    places = pyarrow.Array.from_buffers(
        pyarrow.int32(), len(index), [None, pyarrow.py_buffer(array("i", index))]
    )
    varying = {name for row in own for name in row}
    arrays = []
    for name in columns:
        if name in varying:
            cells = [
                (row.get(name) or shared[number].get(name)) or None
                for row, number in zip(own, index, strict=True)
            ]
            arrays.append(_array(name, cells))
        else:
            arrays.append(_array(name, [row.get(name) or None for row in shared]).take(places))
    return arrays


def _array(name: str, cells: list[str | None]) -> pyarrow.Array:
    import pyarrow
    import pyarrow.compute as compute

    builder = pyarrow.lib.StringBuilder()  # `pyarrow.array` loads pandas where it is installed
    builder.append_values(cells)
    texts = builder.finish()
    if name.endswith("Quantity"):
        exact = texts.cast(pyarrow.decimal128(DIGITS, focus.QUANTITY_PLACES))
        texts = compute.round(exact, ndigits=PLACES, round_mode="half_towards_infinity")
    return texts.cast(_type(name))


def _type(name: str) -> pyarrow.DataType:
    import pyarrow

    if name.endswith(DECIMALS):
        return pyarrow.decimal128(DIGITS, PLACES)
    if name.endswith(MOMENTS):
        return pyarrow.timestamp("us", "UTC")
    return pyarrow.int64() if name in WHOLE else pyarrow.string()


class _Out(io.RawIOBase):
    """What Parquet writes to: it is handed on after each group, and only its length is kept."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        piece = bytes(data)  # type: ignore[call-overload]  # any buffer
        self._pieces.append(piece)
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def taken(self) -> bytes:
        """Return what was written since it was last asked."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data
