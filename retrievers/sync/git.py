"""A git checkout as a source: the files of one commit, HEAD or another name.

Uncommitted changes are ignored, so a run never sees half an edit. The version of a file is its hash in git.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sandbox import CancelCheck
from retrievers.sync.files import UnreadableFile, is_ingestible, path_document_id, read_files, size_problem
from retrievers.sync.source import (
    ItemRequest,
    Listing,
    ReadEvent,
    SourceItem,
    check_item_count,
    key_problem,
    raise_if_cancelled,
    rejected_item,
)

_TIMEOUT_S = 120.0
_PIECE_BYTES = 1 << 20
_MOST_ERROR_BYTES = 4096
_FILES = ("100644", "100755")


@dataclass(slots=True)
class GitSource:
    """The committed files of a checkout or a bare repository.

    Attributes:
        commit: HEAD, a branch, a tag or a commit.
    """

    path: Path
    commit: str = "HEAD"
    _blobs: dict[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.commit.startswith("-"):
            raise BadRequest(f'"{one_line(self.commit, 80)}" is not the name of a commit', where="source")

    @property
    def name(self) -> str:
        """See `Source.name`."""
        return f"git:{Path(os.path.abspath(self.path)).as_posix()}@{self.commit}"

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`."""
        raise_if_cancelled(is_cancelled)
        if not self.path.exists():
            raise BadRequest(f"the source {self.path} does not exist", where="source")
        items, failed = list[SourceItem](), list[RejectedItem]()
        self._blobs = {}
        for line in _lines(self._git("ls-tree", "-r", "-l", "-z", "--full-tree", f"{self.commit}^{{tree}}")):
            raise_if_cancelled(is_cancelled)
            about, _, raw = line.partition(b"\t")
            mode, _, blob, size = about.decode().split()
            name = os.fsdecode(raw)
            key = path_document_id(name)
            if mode not in _FILES or not is_ingestible(name) or key in self._blobs:
                continue
            check_item_count(len(items) + len(failed) + 1)
            if reason := key_problem(key) or size_problem(int(size)):
                failed.append(rejected_item(key, reason))
                continue
            self._blobs[key] = blob, int(size)
            items.append(SourceItem(key, blob))
        return Listing(items, [one.where for one in failed], failed)

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`."""
        return read_files(requests, is_cancelled, self._load, self.name)

    def _load(self, key: str, into: BinaryIO) -> None:
        blob, _ = self._blobs[key]
        try:
            for piece in self._git("cat-file", "blob", blob):
                into.write(piece)
        except Unavailable as error:
            raise UnreadableFile(error.reason) from None

    def _git(self, *arguments: str) -> Iterator[bytes]:
        """Yield the output of a git command that neither runs code from the repository nor fetches objects."""
        program = shutil.which("git")
        if program is None:
            raise Unavailable("the source", "git is not installed")
        # git must not search parent folders: a repository there is not the one that was given.
        ceiling = Path(os.path.abspath(self.path)).parent.as_posix()
        environment = {
            "PATH": os.defpath, "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": ceiling, "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1",
        }  # fmt: skip
        # git refuses folders of other users. Reading objects from them is harmless.
        command = [program, "-c", "safe.directory=*", "-C", str(self.path), *arguments]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
            except OSError as error:
                raise Unavailable("the source", f"git gives no answer ({type(error).__name__})") from error
            late = threading.Timer(_TIMEOUT_S, process.kill)
            late.start()
            with process:
                try:
                    assert process.stdout is not None
                    while piece := process.stdout.read(_PIECE_BYTES):
                        yield piece
                    process.wait()
                finally:
                    late.cancel()
                    process.kill()
            if process.returncode < 0:
                raise Unavailable("the source", f"git gives no answer within {_TIMEOUT_S:.0f} s")
            if process.returncode:
                errors.seek(0)
                said = one_line(errors.read(_MOST_ERROR_BYTES).decode(errors="replace").strip(), 200)
                raise Unavailable("the source", f"git cannot read {self.path}: {said}")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a listing, each of which ends in a NUL."""
    rest = b""
    for piece in pieces:
        if len(rest) > _PIECE_BYTES:
            raise Unavailable("the source", "git lists a path that is too long")
        *lines, rest = (rest + piece).split(b"\0")
        yield from lines
