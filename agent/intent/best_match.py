"""Choose among the values of a field that a name may stand for: the closest one, and other spellings of it."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.catalogue import Known
from agent.intent.sentence import Sentence

_CLOSEST = (
    ("exact", "short", "form"), ("alias",), ("stem",), ("translated",), ("group",), ("part",), ("fuzzy",), ("code",)
)  # fmt: skip


def values_of(sentence: Sentence, known: Sequence[Known]) -> tuple[Known, ...]:
    """Return the values of one field that a name stands for: the closest one, and other spellings of it.

    Several exact values are all returned, and so are the values of a group. Otherwise the result is () if several
    values are equally close.

    Args:
        known: the values of the field that have this name, whether in full, in part or misspelt.
    """
    for hows in _CLOSEST:
        chosen = sorted(
            (one for one in known if one.how in hows), key=lambda one: (hows.index(one.how), -one.documents)
        )
        if not chosen:
            continue
        values = sentence.vocabulary.catalogue.fields[chosen[0].field].values
        same = sentence.vocabulary.spellings[chosen[0].field].get(chosen[0].value, (chosen[0].value,))
        others = [one for one in chosen if one.value not in same]
        first = chosen[0]
        if hows == ("group",):
            return tuple(chosen)
        if others and (hows[0] != "exact" or first.how != "exact"):
            return ()
        spelt = [replace(first, value=value, documents=values.get(value, 0)) for value in same if value != first.value]
        exact = [one for one in others if one.how == "exact"]
        return (first, *spelt, *exact)
    return ()
