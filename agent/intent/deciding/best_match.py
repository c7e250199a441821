"""Choose among the values of one field that a name may stand for: the closest one, with its other spellings."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.analysis.sentence import Sentence
from agent.intent.values.value_match import ValueMatch

_CLOSEST = (
    ("exact", "short", "form"), ("alias",), ("stem",), ("translated",), ("group",), ("part",), ("fuzzy",), ("code",)
)  # fmt: skip


def closest_values(sentence: Sentence, known: Sequence[ValueMatch]) -> tuple[ValueMatch, ...]:
    """Return the values of one field that a name stands for: the closest one, and other spellings of it.

    Several exact values are all returned, and so are the values of a group. Otherwise the result is () if several
    values are equally close.

    Args:
        known: the values of the field that have this name, whether in full, in part or misspelt.
    """
    for kinds in _CLOSEST:
        chosen = sorted(
            (one for one in known if one.kind in kinds), key=lambda one: (kinds.index(one.kind), -one.documents)
        )
        if not chosen:
            continue
        values = sentence.vocabulary.catalogue.fields[chosen[0].field].values
        same = sentence.vocabulary.spelling_variants[chosen[0].field].get(chosen[0].value, (chosen[0].value,))
        others = [one for one in chosen if one.value not in same]
        first = chosen[0]
        if kinds == ("group",):
            return tuple(chosen)
        if others and (kinds[0] != "exact" or first.kind != "exact"):
            return ()
        spelt = [replace(first, value=value, documents=values.get(value, 0)) for value in same if value != first.value]
        exact = [one for one in others if one.kind == "exact"]
        return (first, *spelt, *exact)
    return ()
