"""Last values of scalars in TensorBoard's event files, read without TensorBoard.

A file is a sequence of records: length (8 bytes, little-endian), its checksum (4), the record, its checksum (4). A record is
an `Event` message of protocol buffers: field 2 is the step, field 5 the summary, whose field 1 repeats the values: field 1 the
tag, field 2 a 32-bit float, field 8 a tensor (field 1 its type, 4 its bytes, 5 packed floats, 6 packed doubles).

Source: TensorFlow, `tensorflow/core/util/event.proto` and `tensorflow/core/framework/summary.proto`.
Differs from the source: checksums are not checked; a record that is cut off at the end of a file, as after a kill, is left out.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError

_DOUBLE = 2
"""`DT_DOUBLE` of a tensor."""


@dataclass(frozen=True)
class LastValue:
    """The newest value of one tag."""

    first: int
    """Step of the first value that was written with it."""
    step: int
    value: float
    replaced: int | None = None
    """The largest step of earlier values that these replace, as a resumed run repeats steps; None if there are none."""

    def after(self, earlier: "LastValue | None", *, repeats: bool) -> "LastValue":
        """These values behind earlier ones of the same tag.

        Args:
            earlier: written before.
            repeats: whether values at one and the same step are a repeat too.
        """
        if earlier is None:
            return self
        overlap = self.first <= earlier.step if repeats else self.first < earlier.step
        steps = [earlier.replaced, self.replaced, earlier.step if overlap else None]
        return replace(self, first=earlier.first, replaced=max((s for s in steps if s is not None), default=None))


@dataclass(frozen=True)
class EventFile:
    """The newest value of each tag of a file."""

    path: Path
    start: float
    """Wall time of the first event, in seconds since 1970."""
    last: dict[str, LastValue]


def read_events(path: Path) -> EventFile:
    """Read the newest value of each tag.

    Values are taken in the order in which they were written. A step that does not exceed the one before it begins a resumed
    run: what stands from that step on is replaced.

    Raises:
        InputError: the file cannot be read, or is not an event file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}. Leave it out.") from error
    start = math.inf
    last: dict[str, LastValue] = {}
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        record = data[place + 12 : place + 12 + length]
        if len(record) < length:
            break
        place += 12 + length + 4
        try:
            event = dict(message_fields(record))
            if isinstance(event.get(1), bytes):
                start = min(start, struct.unpack("<d", event[1])[0])
            for step, tag, value in _scalars(event):
                if step >= 2**63:  # a signed number, whose sign is its first bit
                    raise InputError(f"{path}: expected steps from 0, got {step - 2**64} of {tag!r}. Leave it out.")
                last[tag] = LastValue(step, step, value).after(last.get(tag), repeats=False)
        except (IndexError, struct.error, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise InputError(
                f"{path}: expected TensorBoard events, got a record that is not one. Leave it out."
            ) from error
    return EventFile(path, start, last)


def _scalars(event: dict[int, Any]) -> Iterator[tuple[int, str, float]]:
    for number, summary in message_fields(event.get(5, b"")):
        if number == 1:
            content = dict(message_fields(summary))
            value = _value(content)
            if value is not None:
                yield int(event.get(2, 0)), content[1].decode(), value


def _value(content: dict[int, Any]) -> float | None:
    if 2 in content:
        return float(struct.unpack("<f", content[2])[0])
    tensor = dict(message_fields(content.get(8, b"")))
    form, field = ("<d", 6) if tensor.get(1) == _DOUBLE else ("<f", 5)
    packed = tensor.get(4) or tensor.get(field)
    if isinstance(packed, bytes) and len(packed) == struct.calcsize(form):
        return float(struct.unpack(form, packed)[0])
    return None


def message_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and content of each field; a varint as its value, everything else as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise IndexError("a wire type that events do not use")
        if place + size > len(message):
            raise IndexError("a field that is cut off")
        yield key >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
