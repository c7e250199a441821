"""Documents submitted for storage, as records or as a file, in bytes that can be queued."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from retrievers.core.errors import BadRequest
from retrievers.ingest.collections import check_collection_name
from retrievers.ingest.readers.file_input import check_upload
from retrievers.ingest.readers.text_cleaning import MAX_NESTING

MAX_PAYLOAD_BYTES = 16 << 20
MAX_DOCUMENTS = 10_000
_CUT_DEPTH = 2 * MAX_NESTING
_FIRST = b"[\n"
"""The beginning of a payload with one record per line. No record contains a line break, because JSON escapes it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Documents as submitted.

    Attributes:
        payload: a JSON list with one record per line, or the content of a file.
        file: name of the file; None for records.
        documents: number of records; None for a file, which has not been read yet.
    """

    collection: str
    payload: bytes
    file: str | None = None
    documents: int | None = None


def delivery_of_records(collection: str, records: Sequence[object]) -> Delivery:
    """Create a delivery of records in the format of `retrievers.ingest.readers.file_input.read_record`.

    The records are not checked here.

    Raises:
        BadRequest: the collection's name is invalid, there are no records or too many, or they are too large.
    """
    check_collection_name(collection)
    if not 0 < len(records) <= MAX_DOCUMENTS:
        raise BadRequest(f"a delivery must have 1 to {MAX_DOCUMENTS:,} documents", where="documents")
    # One by one, because the encoding of a value blocks all other threads.
    payload = _FIRST + b",\n".join(map(encode_record, records)) + b"\n]"
    return _check_payload_size(Delivery(collection, payload, documents=len(records)))


def delivery_of_file(collection: str, name: str, data: bytes) -> Delivery:
    """Create a delivery of a file in any format that `retrievers.ingest.readers.file_input` reads.

    Raises:
        BadRequest: the collection's or the file's name is invalid, the format is unknown, or the file is too large.
    """
    check_collection_name(collection)
    check_upload(name)
    return _check_payload_size(Delivery(collection, data, file=name))


def _check_payload_size(delivery: Delivery) -> Delivery:
    if len(delivery.payload) > MAX_PAYLOAD_BYTES:
        raise BadRequest(f"a delivery has at most {MAX_PAYLOAD_BYTES >> 20} MiB: send it in parts", where="documents")
    return delivery


def encode_record(value: object) -> bytes:
    """Encode a value as JSON that `decode_record` decodes to the same value.

    Unpaired surrogates and NaN are kept, so that a document with them is rejected later, without the others.

    Raises:
        BadRequest: the value cannot be written as JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    except RecursionError:
        return encode_record(_cut_nesting(value))
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the documents cannot be written as JSON: {error}", where="documents") from None


def _cut_nesting(value: Any, depth: int = 0) -> Any:
    """Return a copy with everything nested deeper than `_CUT_DEPTH` levels replaced by None.

    A document that is cut here is still nested too deeply to be stored, so it is rejected later.

    Args:
        depth: number of levels around `value`.
    """
    if depth > _CUT_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: _cut_nesting(one, depth + 1) for key, one in value.items()}
    return [_cut_nesting(one, depth + 1) for one in value] if isinstance(value, list) else value


def encoded_records(payload: bytes) -> Iterator[bytes]:
    """Yield each record of a payload, as `encode_record` encoded it.

    They are not decoded all at once, which would take ten times the memory of the payload.
    """
    if not payload.startswith(_FIRST):  # earlier versions wrote all records on one line
        yield from map(encode_record, decode_record(payload))
        return
    lines = BytesIO(payload)
    next(lines)
    for line in lines:
        if line != b"]":
            yield line.rstrip(b",\n")


def decode_record(payload: bytes) -> Any:
    """Decode what `encode_record` encoded."""
    return json.loads(payload.decode(errors="surrogatepass"), object_hook=_same)


def _same(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object unchanged. Called by the decoder per object, so that other threads can run in between."""
    return value
