"""Local retrieval: a folder or a list of documents, held in memory and searched without a database.

Each hit has a BM25 score for full text and a cosine for vectors, on the same scales as hits of the database, so fusion
can rank both kinds of hits together. The hit's own score combines the two, each scaled to [0, 1].
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from retrievers.core.errors import BadRequest, RetrievalError, Unavailable, join_names
from retrievers.core.filters import Filter
from retrievers.core.metadata import Field
from retrievers.core.types import PLATFORM, Card, Chunk, ChunkId, Collection, Hit, Query, Scope
from retrievers.embed import Embedder, Vectors
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.file_input import read_paths, read_record
from retrievers.ingest.readers.schema_file import NAME as SCHEMA_NAME
from retrievers.ingest.readers.schema_file import read_schema_file, schema_of
from retrievers.ingest.readers.text_cleaning import printable
from retrievers.memory.corpus import MOST_PASSAGES, Corpus, TooManyPassages, build_corpus
from retrievers.memory.hybrid_search import search_corpus
from retrievers.registry import Resources
from retrievers.sandbox import CancelCheck

CARD = Card(name="local", good_for="documents of a folder on the service's machine, as they are now")

LOOK_EVERY_S = 1.0
"""Minimum time between two checks of the folder for changes, in seconds. Checks happen only when it is searched."""
PATIENCE_S = 1.0
"""How long a search waits for changes to be read, in seconds."""

# Weight of words against vectors when this is the only source; beside other sources the fusion decides.
_LEXICAL, _FOREIGN_LEXICAL = 0.6, 0.95
# Small, because a question that arrives during a batch is embedded only after it.
_BATCH_PASSAGES = 16
_EMBED_AGAIN_S = 30.0
_MOST_REPORTED = 20

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class Local:
    """A retriever over documents in memory. Create it with `of` or `folder`.

        local = Local.of([{"id": "refunds", "text": "Refunds take five days."}], embedder)
        scope = await local.scope()
        hits = await local.search(Query("how long do refunds take", "en", scope))
        fields = scope.external_collections[0].fields
        late = parse_filter({"type": "gte", "key": "year", "value": 2024}, fields)  # for Query.filter

    Documents are read at the first request. Search by words works as soon as the texts are read, search by vectors as
    soon as they are embedded, which takes seconds per hundred passages; `ready` waits for both.
    """

    def __init__(
        self,
        embedder: Embedder,
        items: Callable[[CancelCheck], Iterable[Document | RejectedItem]],
        *,
        fields: Callable[[], Mapping[str, Field]] = dict,
        look: Callable[[], Hashable] = lambda: None,
        named: str = "the documents",
        card: Card = CARD,
    ) -> None:
        self._embedder, self._card = embedder, card
        self._items, self._fields, self._look, self._named = items, fields, look, named
        self._corpus: Corpus | None = None
        self._wrong = ""
        self._seen: Hashable = object()  # differs from any state of the folder
        self._look_after = self._embed_after = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._embedding: asyncio.Task[None] | None = None
        self._known: dict[bytes, Vectors] = {}
        self._vectors: Vectors | None = None
        self._stop = threading.Event()

    @classmethod
    def of(
        cls,
        documents: Iterable[Document | Mapping[str, Any]],
        embedder: Embedder,
        *,
        fields: Mapping[str, Field] | None = None,
    ) -> Self:
        """Create a retriever over documents, or over mappings in the format of `ingest.readers.record.read_record`.

        Args:
            fields: declared fields by name; the types of other fields are inferred from the documents.
        """
        given = [
            one if isinstance(one, Document) else read_record(one, f"documents[{n}]") for n, one in enumerate(documents)
        ]
        return cls(embedder, lambda _stopped: given, fields=lambda: fields or {})

    @classmethod
    def folder(cls, path: Path, embedder: Embedder, *, card: Card = CARD, setting: str = "LOCAL") -> Self:
        """Create a retriever over the files of a folder, which are read as by `signalbox ingest`.

        The folder is read again after its files have changed.

        Args:
            card: its name is also the collection name in the passages' ids.
            setting: the setting that names the folder, for errors.
        Raises:
            BadRequest: the folder does not exist or cannot be read.
        """
        path = path.expanduser()
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise BadRequest(
                f'setting {setting}: "{printable(str(path))}" {what}; it takes a folder of documents',
                where=setting.lower(),
            )
        if not os.access(path, os.R_OK | os.X_OK):
            what = f'setting {setting}: there is no permission to read "{printable(str(path))}"'
            raise BadRequest(what, where=setting.lower())
        return cls(
            embedder,
            lambda stopped: read_paths([path], is_cancelled=stopped),
            fields=partial(_declared, path),
            look=partial(_files, path),
            named=f'the folder "{printable(path.name)}"',
            card=card,
        )

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return self._card

    @property
    def failed(self) -> tuple[RejectedItem, ...]:
        """Files and records that could not be read at the last attempt, and so are not searched."""
        return tuple(self._corpus.failed) if self._corpus else ()

    async def collection(self, *, fresh: bool = False) -> Collection:
        """See `DocumentHolder.collection`. The collection has no documents until they have been read once."""
        self._refresh()
        if fresh:
            await _wait_for(self._refreshing, PATIENCE_S)
        return self._corpus.collection if self._corpus else Collection(0, PLATFORM, self._card.name)

    def load(self, ids: Iterable[ChunkId], wanted_by: Filter | None = None) -> Mapping[ChunkId, Chunk]:
        """See `DocumentHolder.load`."""
        corpus, now = self._corpus, datetime.now(UTC)
        found = (corpus.find(id, wanted_by, now) for id in ids) if corpus is not None else ()
        return {chunk.id: chunk for chunk in found if chunk is not None}

    def term_counts(self, terms: Iterable[str]) -> Mapping[str, int]:
        """See `TermCounter.term_counts`."""
        return self._corpus.postings.passage_counts(terms) if self._corpus else {}

    def documents(self, wanted: Filter | None = None) -> list[ChunkId]:
        """See `DocumentHolder.documents`."""
        return self._corpus.first_passage_ids(wanted, datetime.now(UTC)) if self._corpus is not None else []

    async def scope(self, tenant: str = PLATFORM) -> Scope:
        """Return a scope with only these documents, for use without the service. Waits until the documents are read."""
        await self.ready(vectors=False)
        return Scope(tenant, (), (await self.collection(),))

    async def ready(self, *, vectors: bool = True) -> None:
        """Wait until all documents are read and, if `vectors`, embedded. Raises Unavailable if that fails."""
        await _wait_for(self._refreshing, None)
        self._look_after = float("-inf")
        self._refresh()
        await _wait_for(self._refreshing, None)
        self._read()
        if vectors:
            self._embed()
            await _wait_for(self._embedding, None)
            if self._vectors is None:
                raise Unavailable(self._card.name, "the embedder gave no vectors for the documents")

    async def search(self, query: Query) -> list[Hit]:
        """Return hits by words and vectors, scores in [0, 1], with their chunks. See `Retriever.search`.

        Raises:
            BadRequest: the scope does not contain these documents.
            Unavailable: the documents cannot be read or have not been read yet, or their vectors have another length
                than the vector of the question.
        """
        _check_scope(query.scope, self._card.name)
        self._refresh()
        await _wait_for(self._refreshing, PATIENCE_S)
        corpus = self._read()
        self._embed()
        if self._vectors is None and sum(digest not in self._known for digest in corpus.digests) <= _BATCH_PASSAGES:
            await _wait_for(self._embedding, PATIENCE_S)
        vectors = self._vectors if self._corpus is corpus else None
        question = await self._vector_of(query) if vectors is not None else None
        if question is not None and vectors is not None and len(vectors) and question.shape != vectors.shape[1:]:
            raise Unavailable(self._card.name, f"the embedder {self._embedder.name} changed its vectors' length")
        known = self._embedder.languages
        foreign = known is not None and ("en" if query.translation else query.language) not in known
        lexical = _FOREIGN_LEXICAL if foreign else _LEXICAL
        return await asyncio.to_thread(
            search_corpus, corpus, query, vectors, question, lexical_weight=lexical, source=self._card.name
        )

    async def _vector_of(self, query: Query) -> Vectors | None:
        """Return the vector of the question. None if the embedder is down: the search then uses words only."""
        try:
            return await self._embedder.embed_query(query.translation or query.text)
        except Unavailable as error:
            _log.warning("%s", error)
            return None

    async def aclose(self) -> None:
        """Stop reading and embedding."""
        self._stop.set()
        tasks = [task for task in (self._refreshing, self._embedding) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Reading.

    def _read(self) -> Corpus:
        """Return the documents as last read. Raise Unavailable if they could not be read or are still being read."""
        if self._wrong:
            raise Unavailable(self._card.name, self._wrong)
        if self._corpus is None:
            raise Unavailable(self._card.name, f"{self._named} is still being read", retry_after_s=5)
        return self._corpus

    def _refresh(self) -> None:
        """Start a check for changed files in the background, unless one is running or was made a moment ago."""
        running = self._refreshing is not None and not self._refreshing.done()
        if not running and time.monotonic() >= self._look_after:
            self._refreshing = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        began = time.monotonic()
        seen: Hashable = object()
        try:
            seen = await asyncio.to_thread(self._look)
            # Checking a large folder takes a while; it may use at most a tenth of the time.
            self._look_after = began + max(LOOK_EVERY_S, 10 * (time.monotonic() - began))
            if seen != self._seen:
                corpus = await asyncio.to_thread(self._gather)
                self._report(corpus)
                self._corpus, self._vectors, self._wrong = corpus, None, ""
                self._seen, self._embed_after = seen, float("-inf")
        except TooManyPassages:
            self._fail(
                f"{self._named} holds more than {MOST_PASSAGES:,} passages, the most that are kept in memory: put them "
                "into a collection with `signalbox ingest`",
                seen,
            )
        except (OSError, BadRequest) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._look_after = began + LOOK_EVERY_S
            self._fail(f"{self._named} cannot be read: {reason or type(error).__name__}", object())

    def _gather(self) -> Corpus:
        return build_corpus(
            self._items(self._stop.is_set), self._card.name, declared=self._fields(), stopped=self._stop.is_set
        )

    def _fail(self, reason: str, seen: Hashable) -> None:
        # The old content may have been removed on purpose, so it is no longer searched.
        self._corpus, self._vectors, self._seen = None, None, seen
        self._wrong = reason
        _log.warning("%s", reason)

    def _report(self, corpus: Corpus) -> None:
        held = corpus.collection
        _log.info("%s: %d documents, %d passages", self._named, held.documents, held.chunks)
        for one in corpus.failed[:_MOST_REPORTED]:
            _log.warning("not searched: %s: %s", one.where, one.reason)
        if len(corpus.failed) > _MOST_REPORTED:
            _log.warning("not searched: %d more", len(corpus.failed) - _MOST_REPORTED)

    # Vectors.

    def _embed(self) -> None:
        """Start embedding the passages in the background, unless this is done, is running or failed a moment ago."""
        running = self._embedding is not None and not self._embedding.done()
        due = time.monotonic() >= self._embed_after
        if self._corpus is not None and self._vectors is None and not running and due:
            self._embedding = asyncio.create_task(self._embed_missing(self._corpus))

    async def _embed_missing(self, corpus: Corpus) -> None:
        texts = dict(zip(corpus.digests, corpus.texts_to_embed, strict=True))
        missing = [digest for digest in texts if digest not in self._known]
        try:
            for start in range(0, len(missing), _BATCH_PASSAGES):
                batch = missing[start : start + _BATCH_PASSAGES]
                vectors = await self._embedder.embed([texts[digest] for digest in batch])
                self._known.update(zip(batch, vectors, strict=True))
                if self._corpus is not corpus:
                    return  # the documents have changed: the next search starts again with the vectors known so far
        except RetrievalError as error:
            self._embed_after = time.monotonic() + _EMBED_AGAIN_S
            _log.warning("the local documents are searched by full text only: %s", error)
            return
        self._known = {digest: self._known[digest] for digest in texts}
        rows = [self._known[digest] for digest in corpus.digests]
        self._vectors = np.stack(rows) if rows else np.zeros((0, 1), np.float32)


async def _wait_for(task: asyncio.Task[None] | None, timeout_s: float | None) -> None:
    """Wait for a task that several callers share, at most `timeout_s`; cancelling a caller does not cancel the task.

    Raises:
        Exception: whatever the task has raised. A late or cancelled task raises nothing.
    """
    if task is None:
        return
    await asyncio.wait({task}, timeout=timeout_s)
    if task.done() and not task.cancelled():
        task.result()  # raises the task's exception, so that a bug is not taken for unfinished work


def _check_scope(scope: Scope, name: str) -> None:
    if not any(one.name == name for one in scope.external_collections):
        asked = join_names(one.name for one in scope.collections)
        raise BadRequest(f"the local documents do not belong to the requested collection: {asked}", where="collection")
    if any((one.tenant, one.name) == (PLATFORM, name) for one in scope.collections):
        raise BadRequest(
            f'the platform has a collection named "{name}" as well, whose passages could not be told from those '
            "of the folder: ingest it under another name",
            where="collection",
        )


def _declared(folder: Path) -> Mapping[str, Field]:
    schema = schema_of(folder)
    try:
        return read_schema_file(schema) if schema else {}
    except BadRequest as error:
        # The caller must not learn the path of the folder.
        raise BadRequest(str(error).replace(f"{schema}: ", f"{SCHEMA_NAME}: "), where="local") from error


def _files(root: Path) -> Hashable:
    """Return a value that changes with any visible file of the folder: paths, sizes and modification times.

    Raises:
        OSError: the folder itself cannot be read.
    """
    seen: list[tuple[str, int, int]] = []
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            if folder == root:
                raise
            continue  # reading the documents reports the error
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(folder / entry.name)
                continue
            try:
                status = entry.stat()
            except OSError:
                continue
            seen.append((entry.path, status.st_mtime_ns, status.st_size))
    return frozenset(seen)


def build(resources: Resources) -> Local | None:
    """Build the retriever over the folder in the setting LOCAL; None if it is not set."""
    path = resources.options.get("local")
    return Local.folder(Path(path), resources.embedder) if path else None
