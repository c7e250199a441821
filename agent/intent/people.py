"""Persons that a question names: whether their documents are meant, and in which role."""

from rapidfuzz import fuzz, process

from agent.intent import lexicon
from agent.intent.mentions import Mention
from agent.intent.sentence import ENDS, Sentence

_AUTHORING = frozenset(
    """
    write wrote author propos suggest publish submit creat say said do contribut sponsor draft releas
    post argu think plan present file make made come introduc recommend report cover describ discuss
    """.split()
)
ORGANISATIONS = frozenset("company companies customer client supplier vendor firm organisation organization".split())
_AUTHORING_ZH = ("写", "提", "发布", "撰", "主张", "建议")
_CLAUSES = frozenset("once after when since because while before until as if".split())
_IRREGULAR = frozenset("left became quit went took had was is got chose gave lost began stood".split())
_SHORTEST_MISSPELT = 7
_MISSPELT_CUTOFF = 88
_REACH = 24
_BESIDE = frozenset("and or & , 、 和 与 或".split())
_AUXILIARIES = ("did", "does", "do", "has", "is", "was", "will", "would")


def is_meant(sentence: Sentence, mention: Mention) -> bool:
    """Whether the documents of a person are meant: the person does not act otherwise and is no topic."""
    if _acts_otherwise(sentence, mention) or _is_longer_name(sentence, mention):
        return False
    if _is_organisation(mention):
        return True
    if sentence.folded(mention.first - 1) in ("about", "on", "regarding", "concerning", "关于"):
        return False
    return not sentence.text[: mention.start].rstrip().endswith(("关于", "有关"))


def _is_organisation(mention: Mention) -> bool:
    """Whether the whole name of a company stands there: "the report on Blue Anchor Storage" is one of theirs."""
    return mention.last - mention.first > 1 and all(
        one.how == "exact" and not ORGANISATIONS.isdisjoint(lexicon.name_words(one.field)) for one in mention.known
    )


def _is_longer_name(sentence: Sentence, mention: Mention) -> bool:
    """ "Anders Holm Bridge" is no person."""
    following = sentence.token(mention.last)
    if following is None or following.kind != "word" or not following.is_capital or following.text.isupper():
        return False
    named = sentence.mention_at(mention.last) or sentence.is_noun(mention.last) or sentence.cue_fields(mention.last)
    return following.start == mention.end + 1 and not named


def _acts_otherwise(sentence: Sentence, mention: Mention) -> bool:
    """ "why did Guido step down" is about a person, not about what that person wrote."""
    if sentence.text.lstrip().startswith(("为什么", "为何")):
        return not any(word in sentence.text for word in _AUTHORING_ZH)
    following = sentence.token(mention.last)
    if sentence.folded(mention.first - 1) in _CLAUSES and following is not None and following.kind == "word":
        did = following.folded.endswith("ed") or following.folded in _IRREGULAR
        return did and following.stem not in _AUTHORING  # "once Guido stepped down"
    counts = sentence.folded(0) == "how" and sentence.folded(1) in ("many", "often")
    return (
        sentence.folded(0) in ("why", "when", "how", "where")
        and not counts
        and sentence.folded(mention.first - 1) in _AUXILIARIES
        and following is not None
        and following.kind == "word"
        and following.stem not in _AUTHORING
    )


def fields_meant(sentence: Sentence, mention: Mention, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The field of several that hold people: the one whose word stands near, else the main one.

    "sponsored by Ann" is about sponsors, "written or reviewed by Ann" about two fields.

    Args:
        fields: those that hold the name.
    """
    ordered = sentence.vocabulary.of_role("person")
    near = _fields_near(sentence, mention, ordered)
    if len(near) > 1:
        either = any(sentence.folded(place) in ("or", "或", "或者") for place in range(mention.last, mention.last + 6))
        return near[:2] if either else (next(name for name in reversed(ordered) if name in near),)
    return near or (next((name for name in ordered if name in fields), fields[0]),)


def _fields_near(sentence: Sentence, mention: Mention, people: tuple[str, ...]) -> tuple[str, ...]:
    """The fields of people that words within the same clause point at."""
    near: list[str] = []
    first, last = _side_by_side(sentence, mention)
    if sentence.folded(first - 1) in (":", "：") or (sentence.folded(0) == "who" and sentence.folded(first - 1) == ","):
        # "who sponsored more: Ann or Bo?"
        said = {name for place in range(first - 1) for name in sentence.cue_fields(place) if name in people}
        if len(said) == 1:
            return tuple(said)
    # "as either author or sponsor": words that say nothing do not put what follows out of reach.
    while sentence.folded(last) in ("as", "either", "both", "each", "各", "分", "别"):
        last += 1
    for place in (*range(first - 3, first), *range(last, last + 4)):
        token = sentence.token(place)
        if token is None or sentence.mention_at(place) is not None:
            continue
        if token.text in ENDS:
            if place > mention.first:
                break
            near.clear()
            continue
        fields = sentence.cue_fields(place) or _misspelt_cue(sentence, token.folded)
        cued = [name for name in fields if name in people]
        # "by" stands for all of them, and so tells none apart.
        near += cued if len(cued) == 1 else []
    return tuple(dict.fromkeys(near))


def _side_by_side(sentence: Sentence, mention: Mention) -> tuple[int, int]:
    """The places [first, last) of a person and of those named beside: "Ann and Bo sponsored" is said of both."""
    first, last = mention.first, mention.last
    nearest, farthest = first - _REACH, last + _REACH
    while (
        first > nearest
        and (other := sentence.mention_at(first - 2)) is not None
        and sentence.folded(first - 1) in _BESIDE
    ):
        first = other.first
    while last < farthest and (other := sentence.mention_at(last + 1)) is not None and sentence.folded(last) in _BESIDE:
        last = other.last
    return first, last


def _misspelt_cue(sentence: Sentence, word: str) -> tuple[str, ...]:
    """The fields that a word with a slip points at: "sponsered by"."""
    if len(word) < _SHORTEST_MISSPELT or not word.isascii():
        return ()
    cues = {one[0]: fields for one, fields in sentence.vocabulary.cues.items() if len(one) == 1}
    best = process.extractOne(word, list(cues), scorer=fuzz.ratio, score_cutoff=_MISSPELT_CUTOFF)
    return cues[best[0]] if best is not None else ()
