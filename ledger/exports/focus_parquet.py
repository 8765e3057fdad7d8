"""FOCUS rows as Parquet: decimals as decimals (128 bits, 12 places), moments as moments in UTC.

Rows are gathered into groups, and each is written once it is full, so memory stays the same however
many there are. Quantities, which the CSV has to 18 places, are rounded half up to 12: price times
quantity still gives the cost back to within what the specification allows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from ledger.domain.periods import Period
from ledger.exports import focus
from ledger.exports.charges import BEGIN, Charge

if TYPE_CHECKING:
    import pyarrow

GROUP = 4_096
"""Rows of a row group."""
DIGITS, PLACES = 38, 12
WHOLE = ("x_GpuMilliseconds", "x_EnergyMillijoules")
DECIMALS = ("Cost", "Price", "Quantity")
MOMENTS = ("PeriodStart", "PeriodEnd")
UNIQUE = ("ChargeDescription", "x_JournalEntryId")
"""Texts that nearly every row has to itself; of the others each is written once, and named."""

WRITER = f"pyarrow {version('pyarrow')}"
"""Another version of it may write other bytes for the same rows."""

Cells = dict[str, list[str | None]]


def parts(charges: Iterable[Charge], *, period: Period, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield the file, piece by piece."""
    # Only whoever writes such a file loads it: 30 MB, and 10 more for what computes.
    import pyarrow
    import pyarrow.parquet

    # Arrow's own pool keeps what was freed: tens of megabytes that nobody uses again.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    out = _Out()
    schema = pyarrow.schema([(name, _type(name)) for name in columns])
    named = [name for name in columns if name not in UNIQUE]
    # Without Arrow's own schema in it every reader takes a text for a text, named or not.
    with pyarrow.parquet.ParquetWriter(
        out,
        schema,
        compression="zstd",
        use_dictionary=named,
        store_schema=False,
        write_statistics=[n for n in columns if _reader(n)],
    ) as writer:
        for group in _groups(charges):
            arrays = _arrays(group, period, columns)
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            del arrays
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
    """Return the columns of a group: cells of shared parts are read once, then repeated."""
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
    varying = {name for row in own for name in row}
    arrays = []
    for name in columns:
        of_shared = [row.get(name) or None for row in shared]
        if name in varying:
            both = zip(own, index, strict=True)
            cells = [row.get(name) or of_shared[at] or None for row, at in both]
            arrays.append(_array(name, cells))
        else:
            arrays.append(_array(name, of_shared, index))
    return arrays


def _array(
    name: str, cells: Sequence[str | None], index: Sequence[int] | None = None
) -> pyarrow.Array:
    """Return a column. index: which of the cells each row has; None: each its own."""
    import pyarrow

    if name in UNIQUE:
        return _texts(cells if index is None else [cells[at] for at in index])
    if (read := _reader(name)) is not None:
        return _numbers(
            _type(name), [None if cell is None else read(cell) for cell in cells], index
        )
    codes: dict[str, int] = {}
    coded = [None if cell is None else codes.setdefault(cell, len(codes)) for cell in cells]
    numbers = _numbers(pyarrow.int32(), coded, index)
    return pyarrow.DictionaryArray.from_arrays(numbers, _texts(list(codes)))


def _texts(cells: Sequence[str | None]) -> pyarrow.Array:
    import pyarrow

    builder = pyarrow.lib.StringBuilder()  # `pyarrow.array` loads pandas where it is installed
    builder.append_values(cells)
    return builder.finish()


def _numbers(
    kind: pyarrow.DataType, values: Sequence[int | None], index: Sequence[int] | None
) -> pyarrow.Array:
    """Return whole numbers as an array, by their bytes: what casts and takes loads much more."""
    import pyarrow

    width = kind.bit_width // 8
    cells = [(each or 0).to_bytes(width, "little", signed=True) for each in values]
    data = b"".join(cells if index is None else [cells[at] for at in index])
    length, missing, there = len(data) // width, 0, None
    if None in values:
        bits = ["0" if each is None else "1" for each in values]
        told = "".join(bits if index is None else [bits[at] for at in index])
        missing = told.count("0")
        there = pyarrow.py_buffer(int(told[::-1], 2).to_bytes((length + 7) // 8, "little"))
    return pyarrow.Array.from_buffers(
        kind, length, [there, pyarrow.py_buffer(data)], null_count=missing
    )


def _reader(name: str) -> Callable[[str], int] | None:
    """Return what reads a column's cells as whole numbers; None: they are texts."""
    if name.endswith(DECIMALS):
        return _scaled
    if name.endswith(MOMENTS):
        return _micros
    return int if name in WHOLE else None


def _scaled(text: str) -> int:
    """Read a decimal number in units of its last place, rounded half away from zero."""
    whole, _, fraction = text.partition(".")
    kept = int(whole + fraction[:PLACES].ljust(PLACES, "0"))
    if fraction[PLACES : PLACES + 1] < "5":
        return kept
    return kept - 1 if whole[0] == "-" else kept + 1


@lru_cache(focus.MOMENTS_KNOWN)
def _micros(text: str) -> int:
    """Read a moment in UTC as microseconds since 1970."""
    return (datetime.fromisoformat(text) - BEGIN) // timedelta(microseconds=1)


def _type(name: str) -> pyarrow.DataType:
    import pyarrow

    if name.endswith(DECIMALS):
        return pyarrow.decimal128(DIGITS, PLACES)
    if name.endswith(MOMENTS):
        return pyarrow.timestamp("us", "UTC")
    if name in WHOLE:
        return pyarrow.int64()
    text = pyarrow.string()
    return text if name in UNIQUE else pyarrow.dictionary(pyarrow.int32(), text)


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
