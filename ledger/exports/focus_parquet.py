"""FOCUS rows as Parquet: decimals as decimals (128 bits, 12 places), moments as moments in UTC.

Rows are gathered into groups, and each is written once it is full, so memory stays the same however
many there are. Quantities, which the CSV has to 18 places, are rounded half up to 12: price times
quantity still gives the cost back to within what the specification allows.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from ledger.domain.periods import Period
from ledger.exports import focus
from ledger.exports.charges import BEGIN, Charge

if TYPE_CHECKING:
    import pyarrow

AT_ONCE = 1_024
"""Rows that are gathered as objects, before they become columns: these take a tenth of it."""
GROUP = 8_192
"""Rows of a row group. Of each group some 70 KB are kept until the file is whole: its footer."""
BITS = bytes.maketrans(b"\0\1", b"01")
DIGITS, PLACES = 38, 12
WHOLE = ("x_GpuMilliseconds", "x_EnergyMillijoules")
DECIMALS = ("Cost", "Price", "Quantity")
MOMENTS = ("PeriodStart", "PeriodEnd")
UNIQUE = ("ChargeDescription", "x_JournalEntryId")
"""Texts that nearly every row has to itself; of the others each is written once, and named."""

WRITER = f"pyarrow {version('pyarrow')}"
"""Another version of it may write other bytes for the same rows."""

Cells = Sequence[str | None]


def parts(charges: Iterable[Charge], *, period: Period, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield the file, piece by piece."""
    # Arrow's own pool keeps what was freed, tens of megabytes that nobody uses again. What writes
    # Parquet takes from the pool that this names as Arrow is loaded, and from no other.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Only whoever writes such a file loads it: 30 MB, and 10 more for what computes.
    import pyarrow
    import pyarrow.parquet

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
        for group in _groups(charges, period, columns):
            arrays = group.arrays()
            del group
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            del arrays
            yield out.taken()
    yield out.taken()


def _groups(charges: Iterable[Charge], period: Period, columns: Sequence[str]) -> Iterator[_Group]:
    left = iter(charges)
    group = _Group(period, columns)
    while rows := list(islice(left, min(AT_ONCE, GROUP - len(group)))):
        group.add(rows)
        if len(group) == GROUP:
            full, group = group, _Group(period, columns)
            yield full
            del full
    if len(group):
        yield group


class _Group:
    """The rows of a group: what rows share is kept once, what is their own as columns."""

    def __init__(self, period: Period, columns: Sequence[str]) -> None:
        self._period, self._columns = period, columns
        self._known: dict[Hashable, int] = {}
        self._shared: list[focus.Row] = []
        self._index: list[int] = []
        self._own: dict[str, _Column] = {}

    def __len__(self) -> int:
        return len(self._index)

    def add(self, charges: Sequence[Charge]) -> None:
        """Take some more rows."""
        before, since = len(self._index), self._period.window.starts_at
        for charge in charges:
            key = focus.shared_key(charge, since)
            number = self._known.setdefault(key, len(self._shared))
            if number == len(self._shared):
                self._shared.append(focus.shared_part(charge, period=self._period))
            self._index.append(number)
        own = [focus.own_part(charge) for charge in charges]
        varying = {name for row in own for name in row}
        for name in self._columns:
            if name in varying and name not in self._own:
                self._own[name] = self._of_shared(name, self._index[:before])
        index = self._index[before:]
        for name, column in self._own.items():
            shared = self._cells(name)
            if name not in varying:
                column.repeat(shared, index)
            elif any(shared):
                both = zip(own, index, strict=True)
                column.extend([row.get(name) or shared[at] for row, at in both])
            else:
                column.extend([row.get(name) or None for row in own])

    def arrays(self) -> list[pyarrow.Array]:
        """Return the columns."""
        return [
            (self._own.get(name) or self._of_shared(name, self._index)).array()
            for name in self._columns
        ]

    def _of_shared(self, name: str, index: Sequence[int]) -> _Column:
        column = _column(name)
        column.repeat(self._cells(name), index)
        return column

    def _cells(self, name: str) -> Cells:
        return [row.get(name) or None for row in self._shared]


class _Column(Protocol):
    """A column that grows."""

    def extend(self, cells: Cells) -> None:
        """Append a cell for each row."""

    def repeat(self, cells: Cells, index: Sequence[int]) -> None:
        """Append those of some cells that an index names, one for each row."""

    def array(self) -> pyarrow.Array:
        """Return it."""


def _column(name: str) -> _Column:
    if name in UNIQUE:
        return _Texts()
    read = _reader(name)
    return _Names() if read is None else _Numbers(_type(name), read)


class _Texts:
    """Texts, each written out."""

    def __init__(self) -> None:
        import pyarrow

        self._builder = pyarrow.lib.StringBuilder()  # `pyarrow.array` loads pandas if it is there

    def extend(self, cells: Cells) -> None:
        self._builder.append_values(cells)

    def repeat(self, cells: Cells, index: Sequence[int]) -> None:
        self.extend([cells[at] for at in index])

    def array(self) -> pyarrow.Array:
        return self._builder.finish()


class _Numbers:
    """Whole numbers of a type, by their bytes: what casts and takes loads much more."""

    def __init__(self, kind: pyarrow.DataType, read: Callable[[str], int]) -> None:
        self._kind, self._read, self._width = kind, read, kind.bit_width // 8
        self._data = bytearray()
        self._there = bytearray()

    def extend(self, cells: Cells) -> None:
        self._data += b"".join(map(self._bytes, cells))
        self._there += bytes([cell is not None for cell in cells])

    def repeat(self, cells: Cells, index: Sequence[int]) -> None:
        read = [self._bytes(cell) for cell in cells]
        self._data += b"".join([read[at] for at in index])
        self._there += bytes([cells[at] is not None for at in index])

    def array(self) -> pyarrow.Array:
        import pyarrow

        length, missing, there = len(self._there), self._there.count(0), None
        if missing:
            bits = int(self._there[::-1].translate(BITS), 2)
            there = pyarrow.py_buffer(bits.to_bytes((length + 7) // 8, "little"))
        data = [there, pyarrow.py_buffer(self._data)]
        return pyarrow.Array.from_buffers(self._kind, length, data, null_count=missing)

    def _bytes(self, cell: str | None) -> bytes:
        number = 0 if cell is None else self._read(cell)
        return number.to_bytes(self._width, "little", signed=True)


class _Names:
    """Texts of which each is written once, and named by its number."""

    def __init__(self) -> None:
        import pyarrow

        self._codes: dict[str, int] = {}
        self._numbers = _Numbers(pyarrow.int32(), self._code)

    def extend(self, cells: Cells) -> None:
        self._numbers.extend(cells)

    def repeat(self, cells: Cells, index: Sequence[int]) -> None:
        self._numbers.repeat(cells, index)

    def array(self) -> pyarrow.Array:
        import pyarrow

        names = _Texts()
        names.extend(list(self._codes))
        return pyarrow.DictionaryArray.from_arrays(self._numbers.array(), names.array())

    def _code(self, cell: str) -> int:
        return self._codes.setdefault(cell, len(self._codes))


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
