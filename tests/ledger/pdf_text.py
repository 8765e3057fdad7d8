"""A small reader of our own PDF files: enough to see what text is in them."""

from __future__ import annotations

import base64
import re
import zlib

_OBJECT = re.compile(rb"(\d+) 0 obj\b(.*?)endobj", re.DOTALL)
_STREAM = re.compile(rb"stream\r?\n(.*?)endstream", re.DOTALL)
_FONT = re.compile(rb"/(F\d+(?:\+\d+)?) (\d+) 0 R")
_CHARS = re.compile(rb"<([0-9A-Fa-f]{2})> <([0-9A-Fa-f]{4,})>")
_SHOWN = re.compile(rb"/(F\d+(?:\+\d+)?) [\d.]+ Tf|(\((?:\\.|[^\\()])*\)) Tj", re.DOTALL)
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


def text_of(data: bytes) -> str:
    """Return the text of the file's pages that is in embedded fonts, pieces apart by blanks."""
    objects = {int(number): body for number, body in _OBJECT.findall(data)}
    fonts = {name: _letters(objects, int(number)) for name, number in _FONT.findall(data)}
    said = []
    for body in objects.values():
        page = re.search(rb"/Contents (\d+) 0 R", body)
        if page is None:
            continue
        letters: dict[int, str] = {}
        for font, shown in _SHOWN.findall(_inflated(objects[int(page[1])])):
            if font:
                letters = fonts.get(font, {})
                continue
            raw = _ESCAPED.sub(_unescaped, shown[1:-1])
            said.append("".join(letters.get(byte, chr(byte)) for byte in raw))
    return " ".join(said)


def _letters(objects: dict[int, bytes], number: int) -> dict[int, str]:
    """Return what letter each byte is in a font, by its map to Unicode."""
    found = re.search(rb"/ToUnicode (\d+) 0 R", objects[number])
    if found is None:
        return {}
    text = _inflated(objects[int(found[1])])
    ranges = re.findall(rb"<([0-9A-F]{2})> <([0-9A-F]{2})>\s*\[(.*?)\]", text, re.DOTALL)
    letters = {
        int(byte, 16): bytes.fromhex(code.decode()).decode("utf-16-be")
        for byte, code in _CHARS.findall(text)
    }
    for first, _, codes in ranges:
        for offset, code in enumerate(re.findall(rb"<([0-9A-Fa-f]+)>", codes)):
            letters[int(first, 16) + offset] = bytes.fromhex(code.decode()).decode("utf-16-be")
    return letters


def _inflated(body: bytes) -> bytes:
    [raw] = _STREAM.findall(body)
    if b"ASCII85Decode" in body:
        raw = base64.a85decode(raw.strip().removesuffix(b"~>"))
    return zlib.decompressobj().decompress(raw) if b"FlateDecode" in body else raw


def _unescaped(found: re.Match[bytes]) -> bytes:
    said = found[1]
    if len(said) == 3:
        return bytes([int(said, 8)])
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}.get(said, said)
