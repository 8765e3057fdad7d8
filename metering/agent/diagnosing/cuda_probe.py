"""Probes one GPU through the CUDA driver, as a process of its own: what hangs in it can be killed.

Run as `python -I -S cuda_probe.py LIBRARY SECONDS MIB`, with the card alone in
CUDA_VISIBLE_DEVICES; prints one line of JSON: `fine` and `said`, as of `Verdict`. It computes a
hash of whole numbers on every word of a buffer, compares each bit with what this program computes,
and writes two patterns into memory and reads them back. A bit that differs is silent corruption.
Needs the driver alone (libcuda.so.1): the kernel is in PTX, which the driver compiles.
Source: NVIDIA, "CUDA Driver API" and "PTX ISA".
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import sys
from array import array
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
BLOCK = 4_096
"""Words of the hash that differ; the buffer repeats them, so that comparing them is quick."""
ROUNDS = 64
THREADS = 256
HASHED_MIB = 64
CHUNK_MIB = 64
LOOKED_AT = 65_536
"""Bytes of one look for what differs, word by word only where something does."""
SEED = 0x0FF9EAC5
PATTERNS = (0x55555555, 0xAAAAAAAA)
ONES = 0xFFFFFFFF
FIRST, SECOND = 0x9E3779B1, 0x85EBCA77
PR_SET_PDEATHSIG = 1

OUT_OF_MEMORY = 2
ECC_UNCORRECTABLE = 214
UNKNOWN = -1
NO_LIBRARY = "no CUDA driver is at hand"

PTX = f"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry offpeak_hash(.param .u64 words, .param .u32 count, .param .u32 seed)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %a<4>;
    ld.param.u64 %a1, [words];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [seed];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra DONE;
    and.b32 %r7, %r6, {BLOCK - 1};
    xor.b32 %r8, %r7, %r2;
    mov.u32 %r9, 0;
AGAIN:
    mul.lo.u32 %r8, %r8, {FIRST};
    shr.u32 %r10, %r8, 15;
    xor.b32 %r8, %r8, %r10;
    add.u32 %r8, %r8, %r9;
    mul.lo.u32 %r8, %r8, {SECOND};
    shr.u32 %r10, %r8, 13;
    xor.b32 %r8, %r8, %r10;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p2, %r9, {ROUNDS};
    @%p2 bra AGAIN;
    cvta.to.global.u64 %a1, %a1;
    mul.wide.u32 %a2, %r6, 4;
    add.s64 %a3, %a1, %a2;
    st.global.u32 [%a3], %r8;
DONE:
    ret;
}}
"""


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        self.code = code
        super().__init__(f"{call}: {name}")


class Wrong(Exception):
    """The card computed or kept something else than it should have."""


def hashed(count: int) -> bytes:
    """Return the hash of the first `count` numbers, as a card without fault computes it."""
    words = array("I")
    for number in range(count):
        word = number ^ SEED
        for step in range(ROUNDS):
            word = word * FIRST & ONES
            word = (word ^ word >> 15) + step & ONES
            word = word * SECOND & ONES
            word ^= word >> 13
        words.append(word)
    return words.tobytes()


class Card:
    """The one card that CUDA shows, with a context on it.

    Raises: OSError: there is no such library; CudaError.
    """

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._context = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(self._context), 0, device)

    def free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def take(self, size: int) -> ctypes.c_uint64:
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
        return place

    def give_back(self, place: ctypes.c_uint64) -> None:
        self._call("cuMemFree_v2", place)

    def fill(self, place: ctypes.c_uint64, word: int, count: int) -> None:
        self._call("cuMemsetD32_v2", place, ctypes.c_uint(word), ctypes.c_size_t(count))

    def read(self, place: ctypes.c_uint64, size: int, offset: int = 0) -> bytes:
        into = ctypes.create_string_buffer(size)
        at = ctypes.c_uint64(place.value + offset)
        self._call("cuMemcpyDtoH_v2", into, at, ctypes.c_size_t(size))
        return into.raw

    def hash_into(self, place: ctypes.c_uint64, count: int) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), PTX.encode() + b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"offpeak_hash")
        given = [place, ctypes.c_uint(count), ctypes.c_uint(SEED)]
        parameters = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        grid = (count + THREADS - 1) // THREADS
        shape = (grid, 1, 1, THREADS, 1, 1, 0)
        self._call("cuLaunchKernel", function, *shape, None, parameters, None)
        self._call("cuCtxSynchronize")

    def leave(self) -> None:
        self._call("cuCtxDestroy_v2", self._context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._cuda, name)(*arguments))
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"error %d" % code).decode())


def probe(card: Card, mib: int) -> str:
    """Compute and keep what is known beforehand on a card; return what was done.

    mib: of memory that is written and read back, as far as it is free.
    Raises: CudaError, Wrong.
    """
    words = HASHED_MIB * MIB // 4
    place = card.take(HASHED_MIB * MIB)
    card.hash_into(place, words)
    expected = hashed(BLOCK) * (words // BLOCK)
    _compare(card.read(place, HASHED_MIB * MIB), expected, "computed")
    card.give_back(place)
    chunks = max(1, min(mib, card.free_bytes() * 9 // 10 // MIB) // CHUNK_MIB)
    size = chunks * CHUNK_MIB * MIB
    place = card.take(size)
    for word in PATTERNS:
        card.fill(place, word, size // 4)
        kept = array("I", [word]).tobytes() * (CHUNK_MIB * MIB // 4)
        for chunk in range(chunks):
            offset = chunk * CHUNK_MIB * MIB
            _compare(card.read(place, CHUNK_MIB * MIB, offset), kept, "kept", offset)
    card.give_back(place)
    card.leave()
    return f"{words} hashes and {size // MIB} MiB of memory are as they should be"


def _compare(found: bytes, expected: bytes, what: str, offset: int = 0) -> None:
    if found == expected:
        return
    wrong = [
        at
        for block in range(0, len(expected), LOOKED_AT)
        if found[block : block + LOOKED_AT] != expected[block : block + LOOKED_AT]
        for at in range(block, min(block + LOOKED_AT, len(expected)), 4)
        if found[at : at + 4] != expected[at : at + 4]
    ]
    at = wrong[0]
    differs = int.from_bytes(found[at : at + 4], "little") ^ int.from_bytes(
        expected[at : at + 4], "little"
    )
    raise Wrong(
        f"silent corruption: {len(wrong)} of {len(expected) // 4} words were {what} wrongly, the"
        f" first at byte {offset + at}, in bits 0x{differs:08x}"
    )


def judge(make: Callable[[], Card], mib: int) -> tuple[bool | None, str]:
    """Return what a probe finds, and whether the card is fine; None: it could not look.

    What keeps it from the card (another has it for itself, a driver that is not ready, no memory)
    says nothing of the card. What goes wrong after that does.
    """
    try:
        card = make()
    except OSError:
        return None, NO_LIBRARY
    except CudaError as error:
        return (False if error.code == ECC_UNCORRECTABLE else None), str(error)
    try:
        return True, probe(card, mib)
    except Wrong as wrong:
        return False, str(wrong)
    except CudaError as error:
        return (None if error.code == OUT_OF_MEMORY else False), str(error)


def main() -> None:
    """Probe the card and say what was found."""
    library, seconds, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Should the agent be killed meanwhile, nothing of this stays on the card.
    signal.alarm(seconds + 1)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fine, said = judge(lambda: Card(library), mib)
    print(json.dumps({"fine": fine, "said": said}), flush=True)


if __name__ == "__main__":
    main()
