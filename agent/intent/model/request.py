"""Ask a model to read a question: one call with the question, the fields with their values, and the sources."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import prompts
from agent.intent.model.reply import ModelReading, parse_reply
from agent.intent.model.schema import Form
from agent.llm.model import Model
from agent.llm.token_estimates import estimate_tokens
from agent.types import Message
from retrievers.core.types import Card, FieldCatalogue, FieldValues

STAGE = "intent"
FIELDS_BUDGET_TOKENS = 3000
_MOST_FIELDS = 40
_MOST_VALUES = 200
_LONGEST_VALUE = 80
_LONGEST_DESCRIPTION = 200
_MOST_ALIASES = 20
_MOST_LANGUAGES = 5
_MOST_TURNS = 8
_MOST_EXAMPLES = 5
_LONGEST_TURN = 1500
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


async def request_reading(
    model: Model,
    question: str,
    history: Sequence[Message],
    now: datetime,
    catalogue: FieldCatalogue,
    cards: Sequence[Card],
    deadline: float,
    collection: str | None,
    *,
    languages: Sequence[str] = (),
    collections: Mapping[str, str] | None = None,
    templates: prompts.TemplateLibrary | None = None,
) -> ModelReading:
    """Return the model's reading of a question, not yet checked against the catalogue.

    Args:
        history: the turns before the question, oldest first; system turns are not shown.
        now: in the time zone of the asker.
        cards: the sources that the model may choose from.
        deadline: end of the call, on the clock of `time.monotonic`.
        collection: name of the collection searched, None for all; used only in the key of the call in a recording.
        languages: ISO 639-1 codes of the documents' languages, the most frequent first.
        collections: descriptions of the collections that the model may choose from, by name.
        templates: the tenant's templates; None for the packaged ones.
    Raises:
        ModelFailed: no usable reply in time.
    """
    fields = describe_fields(catalogue)
    sources = "\n".join(f"- {json.dumps(card.name)}: {_described(card)}" for card in cards)
    turns = _turns(history)
    held = "\n".join(f"- {_quoted(name)}: {_quoted(text)}" for name, text in (collections or {}).items())
    values = {
        "languages": ", ".join(languages[:_MOST_LANGUAGES]) or "unknown",
        "called": json.dumps(catalogue.records, ensure_ascii=False) if catalogue.records else "unknown",
        "sources": sources or "none",
        "collections": held or "none",
        "fields": fields or "none",
        "today": format_day(now),
        "history": turns or "none",
        "question": question,
        "fence": prompts.fence(fields, held, turns, question, *catalogue.records),
    }
    reply = await model.complete(
        (templates or prompts.packaged_templates()).load(STAGE).messages(values),
        stage=STAGE,
        deadline=deadline,
        key=recording_key(question, history, now, collection),
        schema=Form,
    )
    return parse_reply(reply.parsed.root)


def recording_key(
    question: str, history: Sequence[Message | Mapping[str, Any]], now: date, collection: str | None
) -> dict[str, Any]:
    """Return the key of the call in a recording of replies, with the date because "last week" depends on it."""
    turns = [turn if isinstance(turn, Mapping) else turn.model_dump() for turn in history]
    said = [{"role": turn["role"], "content": turn["content"]} for turn in turns if turn["role"] != "system"]
    today = now.date() if isinstance(now, datetime) else now
    return {"question": question, "history": said, "date": today.isoformat(), "collection": collection}


def format_day(now: date) -> str:
    """Return a date with its weekday, in English whatever the locale: "Friday, 2026-11-20"."""
    return f"{_WEEKDAYS[now.weekday()]}, {now:%Y-%m-%d}"


def describe_fields(catalogue: FieldCatalogue, budget_tokens: int = FIELDS_BUDGET_TOKENS) -> str:
    """Return one line for each field, with as many of its most frequent values as fit into the budget.

    Values are JSON strings, so a value cannot start a line of its own. The budget is shared fairly: the tokens that a
    field with few values does not use are left to the other fields.
    """
    known = sorted(catalogue.fields.values(), key=lambda one: (-one.documents, one.field.name))[:_MOST_FIELDS]
    heads = {one.field.name: _field_header(one) for one in known}
    left = budget_tokens - sum(estimate_tokens(head) for head in heads.values())
    lines = {}
    # Fields with few values come first; the rest of their budget is shared among the others.
    for place, one in enumerate(sorted(known, key=lambda one: len(one.values))):
        shown = _values(one, left // (len(known) - place))
        left -= estimate_tokens(shown)
        lines[one.field.name] = heads[one.field.name] + shown
    return "\n".join(lines[one.field.name] for one in known)


def _described(card: Card) -> str:
    """Return the description of a source; if the settings define the source, also its examples and its price."""
    if not card.named:
        return card.good_for
    asked = f"; for example {', '.join(map(_quoted, card.examples[:_MOST_EXAMPLES]))}" if card.examples else ""
    paid = f"; a search costs ${card.cost:g}" if card.cost else ""
    return f"{card.good_for}{asked}{paid}"


def _field_header(one: FieldValues) -> str:
    field = one.field
    kind = f"list of {field.item}s" if field.type == "list" else field.type
    text = f"- {_quoted(field.name)} ({kind}, {one.documents} documents)"
    if field.description:
        text += f" {_quoted(field.description[:_LONGEST_DESCRIPTION])}"
    if one.low is not None and one.high is not None:
        text += f": {_quoted(one.low)} to {_quoted(one.high)}"
    return text


def _values(one: FieldValues, budget_tokens: int) -> str:
    """Return ': "Final" 320, "Draft" 49 and 3 more values' within the budget; values that are too long are skipped."""
    names = {value: alias for alias, value in list(one.aliases.items())[:_MOST_ALIASES]}
    ranked = sorted(one.values.items(), key=lambda item: (-item[1], item[0]))[:_MOST_VALUES]
    shown: list[str] = []
    spent = 10
    for value, count in ranked:
        if len(value) > _LONGEST_VALUE:
            continue
        text = f"{_quoted(value)} {count}" + (f" (also {_quoted(names[value])})" if value in names else "")
        spent += estimate_tokens(text) + 1
        if spent > budget_tokens:
            break
        shown.append(text)
    if not shown:
        return f": {one.distinct} values" if one.distinct else ""
    more = one.distinct - len(shown)
    return f": {', '.join(shown)}" + (f" and {more} more values" if more > 0 else "")


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _turns(history: Sequence[Message]) -> str:
    turns = [
        json.dumps({turn.role: turn.content[:_LONGEST_TURN]}, ensure_ascii=False)
        for turn in history
        if turn.role != "system" and turn.content.strip()
    ]
    return "\n".join(turns[-_MOST_TURNS:])
