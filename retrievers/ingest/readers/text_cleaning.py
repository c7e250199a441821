"""Decode bytes to text, and replace characters that PostgreSQL cannot store. Replacements are counted."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, BinaryIO

from retrievers.core.errors import BadDocument
from retrievers.text.pieces import text_pieces
from retrievers.text.prompt_sanitising import remove_invisible

MAX_NESTING = 50
"""Maximum nesting of lists and objects."""
MAX_VALUES = 100_000
"""Maximum number of values in one record: a few lines of YAML aliases can expand to billions."""

_CHUNK_BYTES = 1 << 20
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NEWLINE = re.compile(r"\r\n?|\x85")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Codecs of real pages. Python also has codecs that are not character sets ("unicode_escape", "idna").
_CHARACTER_SET = re.compile(r"utf-8|gb|big5|hz|shift_jis|euc_|iso|cp\d|koi8|mac|tis|ascii")


def is_utf_16(head: bytes) -> bool:
    """Return whether a file that begins with these bytes has a UTF-16 byte order mark."""
    return head.startswith(_UTF_16_MARKS)


def decode_text(data: bytes, *, declared: str | None = None, of: str = "file") -> tuple[str, tuple[str, ...]]:
    """Return text decoded from bytes, and notes about a guessed encoding.

    Tries in this order: UTF-16 if there is a byte order mark, the declared character set, UTF-8, GB18030.

    Args:
        declared: a character set named by the file itself; ignored if it is unknown or does not fit.
        of: what the bytes are, for the message ("line").
    Raises:
        BadDocument: none of these encodings fits. The message contains the offset of the first wrong byte.
    """
    own = _known_codec(declared)
    offset = 0
    for encoding in [own, *_candidate_encodings(data)] if own and not is_utf_16(data) else _candidate_encodings(data):
        try:
            text = data.decode(encoding).removeprefix("\ufeff")
            return text, () if encoding == own else encoding_notes(encoding)
        except UnicodeDecodeError as error:
            if encoding in ("utf-8", "utf-16"):
                offset = error.start
    raise BadDocument(_undecodable_message(data, offset, of))


def detect_encoding(stream: BinaryIO) -> str:
    """Return the name of the encoding that fits all bytes of a file. The file is left at its start.

    Raises:
        BadDocument: as in `decode_text`.
    """
    head = stream.read(2)
    bad_offset = 0
    for encoding in _candidate_encodings(head):
        stream.seek(0)
        found = _first_bad_byte(stream, encoding)
        if found is None:
            stream.seek(0)
            return encoding
        if encoding != "gb18030":
            bad_offset = found
    raise BadDocument(_undecodable_message(head, bad_offset, "file"))


def encoding_notes(encoding: str) -> tuple[str, ...]:
    """Return one note for the documents of a file whose encoding was guessed (GB18030); () for any other encoding."""
    return ("read as GB18030, because it is not UTF-8",) if encoding == "gb18030" else ()


def one_line(text: str, most: int | None = None) -> str:
    """Return text for a message: on one line, without control characters, cut to `most` characters."""
    line = " ".join(printable(text).split())
    return line if most is None or len(line) <= most else line[: most - 1] + "…"


def plain_line(text: str, most: int | None = None) -> str:
    """Like `one_line`, but characters that hide or reorder text become U+FFFD."""
    return one_line(remove_invisible(text, "\ufffd"), most)


def printable(text: str) -> str:
    """Return text on one line, with control characters and unpaired surrogates replaced, so that it can be stored."""
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", _NEWLINE.sub("\n", text))).replace("\n", " ").replace("\t", " ")


def trim_text(text: str) -> str:
    """Remove blank lines at the start and white space at the end. The first line keeps its indentation."""
    text = text.rstrip()
    indentation = len(text) - len(text.lstrip())
    return text[text.rfind("\n", 0, indentation) + 1 :]


def json_type(value: object) -> str:
    """Return the type of a JSON value in words, for a message: "a number", "a list"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"


@dataclass(slots=True)
class Cleaner:
    """Cleans the strings of one document and counts the replacements.

    Control characters other than tab and line feed become spaces, all line ends become line feeds and unpaired
    surrogates become U+FFFD. The text is not normalised further, because citations point into it.
    """

    controls: int = 0
    surrogates: int = 0
    values: int = 0

    def clean_text(self, text: str) -> str:
        return "".join(map(self._clean_piece, text_pieces(text)))

    def _clean_piece(self, text: str) -> str:
        text, controls = _CONTROL.subn(" ", _NEWLINE.sub("\n", text))
        text, surrogates = _SURROGATE.subn("\ufffd", text)
        self.controls += controls
        self.surrogates += surrogates
        return text

    def clean_mapping(self, given: Mapping[Any, Any]) -> dict[str, Any]:
        """Return a copy with clean keys and only JSON values. Dates become ISO strings.

        Raises:
            BadDocument: it is nested too deeply, has too many values, or contains a number that is not finite or a
                value without a JSON type.
        """
        return self._object(given, 0)

    def notes(self) -> tuple[str, ...]:
        counted = [(self.controls, "control character"), (self.surrogates, "lone surrogate")]
        parts = [f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counted if count]
        return (" and ".join(parts) + " replaced",) if parts else ()

    def _object(self, given: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        cleaned = {}
        for given_key, value in given.items():
            key = self.clean_text(str(given_key))
            cleaned[key] = self._value(value, key, depth + 1)
        return cleaned

    def _value(self, value: Any, key: str, depth: int) -> Any:
        self.values += 1
        if self.values > MAX_VALUES:
            raise BadDocument(f"holds more than {MAX_VALUES:,} values")
        if depth > MAX_NESTING:
            raise BadDocument(f'"{key[:60]}" is nested deeper than {MAX_NESTING} levels')
        if isinstance(value, str):
            return self.clean_text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            if not _is_finite(value):
                raise BadDocument(f'"{key[:60]}" holds a number that is not finite or too large')
            return value
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return [self._value(item, key, depth + 1) for item in value]
        if isinstance(value, date):
            return value.isoformat()
        raise BadDocument(f'"{key[:60]}" holds {json_type(value)}; use text, numbers, true/false, lists or objects')


def _is_finite(number: float) -> bool:
    try:
        return abs(float(number)) < float("inf")
    except OverflowError:
        return False


def _candidate_encodings(head: bytes) -> tuple[str, ...]:
    return ("utf-16",) if is_utf_16(head) else ("utf-8", "gb18030")


def _known_codec(declared: str | None) -> str | None:
    """Return the codec of a declared character set; None if it is UTF-8, unknown or not a character set."""
    if not declared:
        return None
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError):
        return None
    if name == "utf-8" or not _CHARACTER_SET.match(name):
        return None
    # Like browsers, read these as the larger sets that contain them: many pages declare the smaller one wrongly.
    return {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252"}.get(name, name)


def _first_bad_byte(stream: BinaryIO, encoding: str) -> int | None:
    """Return the offset of the first byte that cannot be decoded; None if all can."""
    decoder = codecs.getincrementaldecoder(encoding)()
    read = 0
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        read += len(chunk)
        try:
            decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            # The decoder prepends bytes that it kept from the previous chunk.
            return read - len(error.object) + error.start
        if not chunk:
            return None


def _undecodable_message(head: bytes, offset: int, of: str) -> str:
    if is_utf_16(head):
        return f"the {of} starts as UTF-16, but the byte at offset {offset:,} is not; save it as UTF-8"
    return f"the byte at offset {offset:,} of the {of} is not UTF-8, and GB18030 does not fit; save it as UTF-8"
