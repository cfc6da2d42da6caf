"""Last values of scalars in TensorBoard's event files, read without TensorBoard.

A file is a sequence of records: length (8 bytes, little-endian), its checksum (4), the record, its checksum (4). A record is
an `Event` message of protocol buffers: field 2 is the step, field 5 the summary, whose field 1 repeats the values: field 1 the
tag, field 2 a 32-bit float, field 8 a tensor (field 4 its bytes, field 5 packed floats).

Source: TensorFlow, `tensorflow/core/util/event.proto` and `tensorflow/core/framework/summary.proto`.
Differs from the source: checksums are not checked; a record that is cut off at the end of a file, as after a kill, is left out.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from addnorm.errors import InputError


def last_scalars(path: Path) -> dict[str, tuple[int, float]]:
    """Step and value of each tag at its last step.

    Raises:
        InputError: the file is not an event file.
    """
    data = path.read_bytes()
    last: dict[str, tuple[int, float]] = {}
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        record = data[place + 12 : place + 12 + length]
        if len(record) < length:
            break
        place += 12 + length + 4
        try:
            for step, tag, value in _scalars(record):
                if tag not in last or step >= last[tag][0]:
                    last[tag] = (step, value)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: expected TensorBoard events, got a record that is not one. Leave it out."
            ) from error
    return last


def _scalars(record: bytes) -> Iterator[tuple[int, str, float]]:
    event = dict(_fields(record))
    for number, summary in _fields(event.get(5, b"")):
        if number == 1:
            content = dict(_fields(summary))
            value = _value(content)
            if value is not None:
                yield int(event.get(2, 0)), content[1].decode(), value


def _value(content: dict[int, Any]) -> float | None:
    if 2 in content:
        return float(struct.unpack("<f", content[2])[0])
    tensor = dict(_fields(content.get(8, b"")))
    packed = tensor.get(4) or tensor.get(5)
    return float(struct.unpack("<f", packed)[0]) if isinstance(packed, bytes) and len(packed) == 4 else None


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
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
