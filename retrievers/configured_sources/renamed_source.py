"""A named outside source: the web or a knowledge base, whose hits and errors carry the source's own name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from retrievers.core.errors import BadRequest, TooCostly, Unavailable
from retrievers.core.ranking import sort_by_score
from retrievers.core.types import Card, Closeable, Hit, Query, Retriever

_SETTING = re.compile(r"\b(?:WEB|CLOUD)(?:_[A-Z]+)*\b")


@dataclass(frozen=True, slots=True)
class RenamedSource:
    """A retriever that passes searches to another one, of the web or a knowledge base, and renames its hits and errors.

    Args:
        card: description of this source, with its own name.
        inner: the retriever of the web or of a knowledge base.
        words: name of a setting to the key that replaces it for this source: {"WEB_API_KEY": "sources.news.api_key"}.
            Errors of the inner retriever name the setting, but the user has to change the key.
    """

    card: Card
    inner: Retriever
    words: Mapping[str, str]

    async def search(self, query: Query) -> list[Hit]:
        """Return the inner retriever's hits, with this source's name as their collection; see `Retriever.search`."""
        try:
            hits = await self.inner.search(query)
        except TooCostly as error:
            raise TooCostly(self.card.name, replace_setting_names(error.reason, self.words)) from None
        except Unavailable as error:
            reason = replace_setting_names(error.reason, self.words)
            raise Unavailable(self.card.name, reason, retry_after_s=error.retry_after_s) from None
        except BadRequest as error:
            reason = replace_setting_names(str(error), self.words)
            raise type(error)(f"{self.card.name}: {reason}", where=error.where, valid=error.valid) from None
        return sort_by_score(self._own(hit) for hit in hits)

    def _own(self, hit: Hit) -> Hit:
        """Return the hit under this source's name. Two sources may return the same id, and must not be confused."""
        id = hit.id._replace(collection=self.card.name)
        chunk = replace(hit.chunk, id=id) if hit.chunk is not None else None
        return hit._replace(id=id, source=self.card.name, chunk=chunk)

    async def aclose(self) -> None:
        """Close the connections."""
        if isinstance(self.inner, Closeable):
            await self.inner.aclose()


def replace_setting_names(message: str, words: Mapping[str, str]) -> str:
    """Replace names of settings in a message by their keys: "set WEB_API_KEY" -> "set sources.news.api_key".

    Args:
        words: name of a setting to its key.
    """
    return _SETTING.sub(lambda found: words.get(found[0], found[0]), message)
