"""Intent `off`: what the caller fixed, the question's language, and the question as its own search."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.intent.reading import Reading
from agent.types import Intent, Request, SourceChoice
from retrievers.core.filters import Filter, to_json
from retrievers.core.types import Scope
from retrievers.text.languages import detect


@dataclass(frozen=True, slots=True)
class Off:
    """The reader that reads nothing into a question.

    Args:
        sources: those to ask when the caller names none.
    """

    sources: Sequence[str]

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """See `IntentReader.read`."""
        return Reading(read(request, scope, wanted, self.sources))


def read(request: Request, scope: Scope, wanted: Filter | None, sources: Sequence[str]) -> Intent:
    """The intent a caller states by the request alone.

    Args:
        wanted: the caller's filter, parsed.
        sources: the sources that exist, used when the caller names none.
    """
    question = request.question
    return Intent(
        question=question,
        language=question_language(question, scope),
        searches=(question,),
        collections=tuple(sorted({collection.name for collection in scope.all})),
        filter=to_json(wanted) if wanted else None,
        sources=tuple(
            SourceChoice(name=name, confidence=1.0, reason="named by the caller" if request.sources else "default")
            for name in dict.fromkeys(request.sources or sources)
        ),
        by="caller",
    )


def question_language(question: str, scope: Scope) -> str:
    """The question's language, among those of the collections: a short text alone is weak evidence."""
    written = {language for collection in scope.all for language in collection.languages}
    return detect(question, written or None)
