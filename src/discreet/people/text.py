"""Delimited text (CSV, TSV) as a table of text: a fixed dialect in which no line can change how another is read.

UTF-8; the first line names the columns; fields are separated by commas (.csv; by semicolons where the first line has
them and no comma) or tabs (.tsv) and may stand in double quotes, where a quote is written twice (RFC 4180). One
physical line is one row: nothing continues on the next line, not even inside quotes; empty lines are none. Every
field of a row is a text, perhaps an empty one. A malformed line (too many or too few fields, a stray or unclosed
quote, NUL, bytes that are not UTF-8, more than `LONGEST_LINE` bytes) is a row without any value, so that it belongs
to nobody. Nothing is guessed from the data: no types, separators, comments or missing values.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from discreet.kernels.lines import NEWLINE, Bytes, gather, split_lines

#: Bytes that are read at a time, and the most that a line may have.
BLOCK = 2**22
LONGEST_LINE = 2**20
#: Fields that are split at a time.
FIELDS = 2**21

#: Types of columns of text.
TEXT = (pa.string(), pa.large_string(), pa.string_view())

DELIMITERS = {".csv": ",", ".tsv": "\t"}
#: Of files whose first line has it and no comma; as where it is usual, their numbers may have a decimal comma.
SEMICOLON = ";"
#: What nobody calls a column: a number, a day or a moment.
NO_NAME = re.compile(r"[+-]?[0-9]*[.,]?[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}.*")
BOM = b"\xef\xbb\xbf"


def delimiter_of(line: bytes, suffix: str) -> str:
    """What separates fields, from the first line alone."""
    names = re.sub(rb'"[^"]*"', b"", line)
    return SEMICOLON if suffix == ".csv" and b";" in names and b"," not in names else DELIMITERS[suffix]


def is_row(names: Iterable[str]) -> bool:
    """Whether a first line looks like somebody's row, which no message may show."""
    return any(NO_NAME.fullmatch(name) for name in names)


def columns_of(line: bytes, delimiter: str, path: str) -> tuple[str | None, ...]:
    """Names of columns from a first line, the public description of a file, in which any fault is refused."""
    line = line.removeprefix(BOM).removesuffix(b"\r")
    if not line:
        raise ValueError(f"the first line of {path} is empty; expected the names of the columns")
    try:
        text = line.decode("utf-8")
        if len(line) > LONGEST_LINE or "\0" in text or "\r" in text:
            raise ValueError
        (names,) = csv.reader([text], delimiter=delimiter, strict=True)
    except (ValueError, csv.Error):
        raise ValueError(
            f"the first line of {path} names no columns; expected UTF-8 text with one line per row"
        ) from None
    columns = tuple(name.strip() or None for name in names)
    known = [name.lower() for name in columns if name is not None]
    if len(set(known)) < len(known):
        raise ValueError(f"the first line of {path} names a column twice; expected each name once")
    return columns


@dataclass(frozen=True)
class TextFile:
    """A file and the columns that its first line names; columns without a name have None."""

    path: str
    delimiter: str
    columns: tuple[str | None, ...]

    @classmethod
    def opened(cls, path: str, suffix: str) -> TextFile:
        """Read the first line."""
        with _stream(path) as stream:
            line, _, _ = _bytes(stream, LONGEST_LINE + 8).partition(b"\n")
        delimiter = delimiter_of(line, suffix)
        return cls(path, delimiter, columns_of(line, delimiter, path))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows, in the columns of the schema; those that the file does not have are null."""
        with _stream(self.path) as stream:
            rest = _bytes(stream, BLOCK).partition(b"\n")[2]  # the first line is shorter than a block
            while True:
                more = _bytes(stream, BLOCK)
                whole, newline, rest = (rest + (more or b"\n")).rpartition(b"\n")
                rest = rest[: LONGEST_LINE + 2]  # what is longer is malformed, however long
                for text in _portions(whole + newline, len(self.columns)):
                    yield self._batch(text, schema)
                if not more:
                    return

    def _batch(self, text: Bytes, schema: pa.Schema) -> pa.RecordBatch:
        lines = int(np.count_nonzero(text == NEWLINE))
        starts, sizes = np.zeros((2, len(self.columns), lines), dtype=np.int32)
        good = np.zeros(lines, dtype=np.bool_)
        n = split_lines(text, ord(self.delimiter), LONGEST_LINE, starts, sizes, good)
        valid = pa.py_buffer(np.packbits(good[:n], bitorder="little"))
        place = {name: i for i, name in enumerate(self.columns) if name is not None}

        def column(i: int) -> pa.Array:
            offsets = np.zeros(n + 1, dtype=np.int32)
            np.cumsum(sizes[i, :n], out=offsets[1:])
            values = np.empty(offsets[-1], dtype=np.uint8)
            gather(text, starts[i, :n], offsets, values)
            return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(values), valid)

        arrays = [column(place[name]) if name in place else pa.nulls(n, pa.string()) for name in schema.names]
        return pa.record_batch(arrays, schema=schema)


@dataclass(frozen=True)
class TextLog:
    """Files as one table that DuckDB reads as often as it likes, a block at a time."""

    files: tuple[TextFile, ...]

    @classmethod
    def opened(cls, paths: Sequence[str], suffix: str) -> TextLog:
        files = tuple(TextFile.opened(path, suffix) for path in paths)
        if len({file.delimiter for file in files}) > 1:
            raise ValueError(f"the files of the log {paths[0]} have commas and semicolons; give files of one kind")
        return cls(files)

    @property
    def comma(self) -> bool:
        """Whether numbers may have a decimal comma."""
        return self.files[0].delimiter == SEMICOLON

    @property
    def schema(self) -> pa.Schema:
        names = dict.fromkeys(name for file in self.files for name in file.columns if name is not None)
        return pa.schema([(name, pa.string()) for name in names])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        schema = self.schema
        batches = (batch for file in self.files for batch in file.batches(schema))
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class CheckedTable:
    """An Arrow table or dataset as DuckDB can read it whatever its text columns hold: what is not UTF-8 is null."""

    source: Any

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        given = self.source.schema
        schema = pa.schema([(field.name, _plain(field.type)) for field in given])
        batches = (
            pa.record_batch([_checked(column) for column in batch.columns], schema=schema)
            for batch in self.source.to_batches()
        )
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)


def checked(source: Any) -> Any:
    """The table or dataset itself, where DuckDB can read it as it is."""
    plain = all(field.type not in TEXT and field.type == _plain(field.type) for field in source.schema)
    return source if plain else CheckedTable(source)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type as which DuckDB reads a column: without a dictionary, half floats as whole ones."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.float32() if kind == pa.float16() else kind


def _checked(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == pa.float16():
        return column.cast(pa.float32())
    if column.type not in TEXT:
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()], column.type)
    return column


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _stream(path: str) -> Any:
    """The bytes of a file, without its compression (.gz, .zst)."""
    return pa.input_stream(path, compression="detect")


def _bytes(stream: Any, number: int) -> bytes:
    """The next bytes; fewer only where the file ends."""
    parts = []
    while number and (part := stream.read(number)):
        parts.append(part)
        number -= len(part)
    return b"".join(parts)


def _portions(text: bytes, width: int) -> Iterator[Bytes]:
    """Whole lines, so many at a time that the places of their fields take little memory."""
    values = np.frombuffer(text, dtype=np.uint8)
    most = max(FIELDS // width, 1)
    start = 0
    for end in (*np.flatnonzero(values == NEWLINE)[most - 1 :: most] + 1, values.size):
        if end > start:
            yield values[start:end]
        start = end
