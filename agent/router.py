"""Router: which sources are asked what. A pure function of the intent and what exists."""

from collections.abc import Sequence

from agent.types import Intent, Step


def plan(intent: Intent, *, sources: Sequence[str], source_timeout_s: float, timeout_s: float) -> tuple[Step, ...]:
    """Every chosen source asked every search, all at once.

    Args:
        sources: names of the sources that exist; the intent's choice is among them, and an intent
            without a choice asks all.
    """
    if intent.kind == "none":
        return ()
    named = [choice.name for choice in intent.sources] if intent.sources else sources
    chosen = [name for name in dict.fromkeys(named) if name in sources]
    return tuple(
        Step(source=source, search=search, filter=intent.filter, timeout_s=min(source_timeout_s, timeout_s), step=1)
        for search in dict.fromkeys(intent.searches)
        for source in chosen
    )
