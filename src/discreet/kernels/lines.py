"""Compiled splitting of delimited text: every line alone, whatever the other lines hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled

Bytes = NDArray[np.uint8]
Places = NDArray[np.int32]
Mask = NDArray[np.bool_]

NEWLINE, RETURN, QUOTE = 10, 13, 34


@compiled
def _is_utf8(text: Bytes, start: int, end: int) -> bool:
    """Whether bytes are UTF-8 in its shortest form, without surrogates and without NUL."""
    i = start
    while i < end:
        lead = text[i]
        i += 1
        if lead == 0:
            return False
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 + int(lead >= 0xE0) + int(lead >= 0xF0)
        # what the second byte may be: no longer form than needed, no surrogate, nothing above U+10FFFF
        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
        high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
        if i + more > end or text[i] < low or text[i] > high:
            return False
        for k in range(1, more):
            if text[i + k] & 0xC0 != 0x80:
                return False
        i += more
    return True


@compiled
def _split_line(text: Bytes, i: int, end: int, delimiter: int, starts: Places, sizes: Places, row: int) -> bool:
    """Places of the fields of one line and their sizes without doubled quotes; False: the line is malformed."""
    width = starts.shape[0]
    for field in range(width):
        size = 0
        if i < end and text[i] == QUOTE:
            i += 1
            starts[field, row] = i
            closed = False
            while i < end and not closed:
                if text[i] != QUOTE:
                    size += 1
                elif i + 1 < end and text[i + 1] == QUOTE:
                    size += 1
                    i += 1
                else:
                    closed = True
                i += 1
            if not closed:
                return False
        else:
            starts[field, row] = i
            while i < end and text[i] != delimiter:
                if text[i] == QUOTE:
                    return False
                i += 1
                size += 1
        sizes[field, row] = size
        if field + 1 < width:
            if i >= end or text[i] != delimiter:
                return False
            i += 1
    return i == end


@compiled
def split_lines(text: Bytes, delimiter: int, longest: int, starts: Places, sizes: Places, good: Mask) -> int:
    """Fields of all lines of a text that ends with a newline; returns how many lines there are, empty ones left out.

    Arrays are (fields, lines) and must be as long as there are newlines. Fields of malformed lines have size 0.
    """
    row, start = 0, 0
    for newline in range(text.size):
        if text[newline] != NEWLINE:
            continue
        end = newline
        if end > start and text[end - 1] == RETURN:
            end -= 1
        if end > start:
            good[row] = (
                end - start <= longest
                and _is_utf8(text, start, end)
                and _split_line(text, start, end, delimiter, starts, sizes, row)
            )
            if not good[row]:
                sizes[:, row] = 0
            row += 1
        start = newline + 1
    return row


@compiled
def gather(text: Bytes, starts: Places, offsets: Places, values: Bytes) -> None:
    """Copy the fields that begin at `starts` to where `offsets` say, doubled quotes once."""
    for row in range(starts.size):
        i = starts[row]
        for k in range(offsets[row], offsets[row + 1]):
            values[k] = text[i]
            i += 2 if text[i] == QUOTE else 1
