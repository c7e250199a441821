"""Which of the values that a question names are meant as constraints, and which are its topic.

A topic is not a place: "PEPs about packaging" constrains nothing, "packaging PEPs" does. What decides is
the role of the field and the words around: the field's own name, a noun for documents that the value
describes, a verb of being, a negation (see `evidence`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.intent import evidence, people, wording
from agent.intent.mentions import Mention
from agent.intent.negation import is_negated
from agent.intent.sentence import Sentence
from agent.intent.vocabulary import CONFIDENCE, Known

_CONNECTING = frozenset(
    """
    or and / , 、 the a an both either how many vs . versus 和 与 或 还 是 及
    """.split()
)
_CLOSE = 24
"""Characters between two values that are still said in one breath."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One condition on a field, and the characters of the question that state it.

    Attributes:
        together: the values were asked for at once ("both A and B").
        also: other fields that would do as well ("written or reviewed by").
    """

    field: str
    values: tuple[str, ...]
    start: int
    end: int
    negated: bool = False
    together: bool = False
    confidence: float = 1.0
    also: tuple[str, ...] = ()


def read_constraints(sentence: Sentence) -> tuple[list[Constraint], list[Mention]]:
    """The constraints that named values make, and the mentions that are topics or unclear."""
    found: list[Constraint] = []
    left: list[Mention] = []
    for mention in sentence.mentions:
        if any(first < mention.end and mention.start < last for first, last in sentence.taken):
            continue
        made = _constraint(sentence, mention)
        if made is None:
            left.append(mention)
        else:
            found.append(made)
    for mention in list(left):
        made = _alternative(sentence, mention, found)
        if made is not None:
            left.remove(mention)
            found.append(made)
    return _joined(sentence, sorted(found, key=lambda one: one.start)), left


def _constraint(sentence: Sentence, mention: Mention) -> Constraint | None:
    """The constraint that one name makes; None when it is a topic, or unclear."""
    roles = sentence.vocabulary.roles
    persons = tuple(one for one in mention.known if roles.get(one.field) == "person")
    exact = any(one.how in ("exact", "alias") and one not in persons for one in mention.known)
    if persons and not (exact and all(one.how == "part" for one in persons)):
        return _person(sentence, mention, persons)
    words = tuple(token.folded for token in sentence.tokens[mention.first : mention.last])
    best: Known | None = None
    for known in mention.known:
        cued = sentence.vocabulary.cues.get(words, ())
        if known.how == "translated" and any(
            roles.get(field) != "date" or roles[known.field] == "tag" for field in cued
        ):
            continue  # 类型 is the word for a field before it is a value; 批准 says when and what became of it
        if _is_meant(sentence, mention, known) and (best is None or CONFIDENCE[known.how] > CONFIDENCE[best.how]):
            best = known
    if best is None and sentence.counted:
        best = next((known for known in mention.known if _is_counted(sentence, mention, known)), None)
    return None if best is None else _stating(sentence, mention, best, best.field)


def _is_counted(sentence: Sentence, mention: Mention, known: Known) -> bool:
    role = sentence.vocabulary.roles.get(known.field)
    return role in ("label", "tag") and evidence.is_counted(sentence, mention, known, is_tag=role == "tag")


def _is_meant(sentence: Sentence, mention: Mention, known: Known) -> bool:
    role = sentence.vocabulary.roles.get(known.field)
    if role == "version":
        return evidence.is_version(sentence, mention)
    if role == "language":
        return evidence.is_language(sentence, mention)
    return evidence.is_constraint(sentence, mention, known, is_tag=role == "tag")


def _person(sentence: Sentence, mention: Mention, persons: tuple[Known, ...]) -> Constraint | None:
    """None when the person is a topic, or when several bear the name."""
    if not people.is_meant(sentence, mention) or len({known.value for known in persons}) > 1:
        return None
    fields = people.fields_meant(sentence, mention, tuple(dict.fromkeys(known.field for known in persons)))
    best = max(persons, key=lambda known: CONFIDENCE[known.how])
    return replace(_stating(sentence, mention, best, fields[0]), also=fields[1:])


_DENIAL_ZH = re.compile(r"(?:尚未|未被?|并非|非|不是|没有?被?)$")


def _stating(sentence: Sentence, mention: Mention, known: Known, field: str) -> Constraint:
    start, end = sentence.extent(mention, field)
    negated = is_negated(sentence, mention)
    if negated and (denial := _DENIAL_ZH.search(sentence.text[:start])):
        start = denial.start()
    return Constraint(field, (known.value,), start, end, negated=negated, confidence=CONFIDENCE[known.how])


def _alternative(sentence: Sentence, mention: Mention, found: Sequence[Constraint]) -> Constraint | None:
    """A value beside another of the same field that is a constraint: "tagged spot or autoscaling"."""
    for other in found:
        for known in mention.of(other.field):
            low, high = (other.end, mention.start) if other.start < mention.start else (mention.end, other.start)
            first = sentence.index_from(low)
            # One more than may stand between, of what may be thousands.
            between = [token for token in sentence.tokens[first : first + 5] if token.end <= high]
            if between and len(between) <= 4 and all(token.folded in _CONNECTING for token in between):
                return replace(
                    other, values=(known.value,), start=mention.start, end=mention.end, confidence=CONFIDENCE[known.how]
                )
    return None


def _joined(sentence: Sentence, found: list[Constraint]) -> list[Constraint]:
    """Values of one field put together: alternatives, or all at once for a list field asked for "both"."""
    joined: list[Constraint] = []
    for one in found:
        same = (one.field, one.negated, one.also)
        place = next((n for n, other in enumerate(joined) if (other.field, other.negated, other.also) == same), None)
        if place is None:
            joined.append(one)
            continue
        other = joined[place]
        joined[place] = replace(
            other,
            values=tuple(dict.fromkeys((*other.values, *one.values))),
            start=min(other.start, one.start),
            end=max(other.end, one.end) if one.start - other.end < _CLOSE else other.end,
            together=other.together or _is_together(sentence, other, one),
            confidence=min(other.confidence, one.confidence),
        )
    positive = {one.field for one in joined if not one.negated and not one.together}
    lists = {name for name, values in sentence.vocabulary.catalogue.fields.items() if values.field.type == "list"}
    # "Accepted, not Final yet": of a single value the positive one says it all.
    return [one for one in joined if not one.negated or one.field not in positive or one.field in lists]


def _is_together(sentence: Sentence, one: Constraint, other: Constraint) -> bool:
    """Whether documents must have both values: "both asbestos and lead", 同时, or two authors with "and"."""
    if sentence.vocabulary.catalogue.fields[one.field].field.type != "list":
        return False
    between = sentence.text[one.end : other.start].casefold()
    if len(between) >= _CLOSE or "or" in between.split() or "或" in between:
        return False
    behind = sentence.text[other.end :]
    if wording.EACH.search(behind) or wording.COMPARED.search(behind):
        return False  # "A and B each", "A 和 B 谁写得多": one after the other
    head = sentence.text[max(0, one.start - 20) : one.start].casefold()
    if "both" in head or "同时" in head or "一起" in between or "together with" in between or "jointly" in between:
        return True
    return sentence.vocabulary.roles[one.field] == "person" and between.strip() in ("and", "和", "与", "&")
