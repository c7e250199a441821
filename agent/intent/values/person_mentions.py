"""Decide whether one word of a question can be a person's first name or surname, by the words beside it."""

from collections.abc import Sequence

from agent.intent.language import lexicon
from agent.intent.language.text import Token
from agent.intent.values.numeric_codes import fields_named_before
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_frequencies

RARE_WORD = 1
"""Maximum frequency class (see `words.word_frequencies`) of a word that may be a surname without a capital."""
_SHORTEST = 4
_POSSESSIVE = 3
"""Characters between two words with "'s" and a blank between them: `tokenize` makes no token of "'s"."""
_IN = frozenset("in at near within".split())
_ARTICLES = frozenset("the a an this that".split())
_JOINING = frozenset("and or , &".split())
_BY = frozenset("by from to 由".split())
_ARRANGED = frozenset("grouped sorted ordered ranked split filtered arranged divided listed counted put".split())
"""Participles before "by" and the name of a field."""
# First names and surnames that are also everyday words: they need a capital or a sign, see `is_person_mention`.
_EVERYDAY = frozenset(
    """
    will mark may bill grant rich dale art hope faith joy grace dawn june april august rose lily ivy
    frank jack guy max ray rob sue pat drew chase hunter major young long short brown white black green
    king page bell wood stone field hill lake rivers banks day love best good small little price cook
    baker miller smith carter porter parker mason turner walker singer fisher gardener law lane west
    north east south win van den der
    """.split()
)


def is_person_mention(field: str, tokens: Sequence[Token], place: int, vocabulary: Vocabulary) -> bool:
    """Return whether the word at `place` can be a part of a person's name in a field of people.

    It can if it has a capital, is a rare word, or has a sign of a person beside it: a title, "by" or the field's name
    before it, or "'s" or "as" and the field's name after it. A word that also points at a field needs a sign and a
    capital, and "by" is a sign only after a verb: "chaired by Hall" is a person, "talks by Hall" groups by `hall`.
    """
    word, before = tokens[place], tokens[place - 1].folded if place else ""
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    is_said = field in fields_named_before(tokens, place, vocabulary)
    is_field = (word.folded,) in vocabulary.cues
    if is_said and not is_field:
        return True  # "case officer lamb"
    if is_field:
        is_led = before not in _BY or _is_past_action(tokens, place - 2)
        is_said = is_said or (is_led and has_person_cue(field, tokens, place, vocabulary))
        return is_said and _has_own_capital(tokens, place)  # "confirmed by Hall", although `hall` is a field
    is_said = has_person_cue(field, tokens, place, vocabulary)
    if before in _IN or word.folded in lexicon.STOP_WORDS:
        return False
    if word.folded in _EVERYDAY and not is_said and not _is_written_as_name(tokens, place):
        return False
    is_rare = word_frequencies().get(word.stem, 0) <= RARE_WORD and len(word.text) >= _SHORTEST
    if not (word.is_capital or is_rare or is_said):
        return False
    if following is None or following.kind != "word" or following.start != word.end + 1:
        return True
    is_unknown = following.stem not in word_frequencies() and (following.folded,) not in vocabulary.names
    goes_on = following.is_capital and not following.text.isupper()
    return not goes_on and not (is_unknown and not word.is_capital)  # "Guido Smith", "guido okfor" are other people


def has_person_cue(field: str, tokens: Sequence[Token], place: int, vocabulary: Vocabulary) -> bool:
    """Return whether words beside a word show a person of `field`: a title, "by", "'s", "as" and the field's name."""
    before = tokens[place - 1].folded if place else ""
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    is_owner = following is not None and following.start - tokens[place].end == _POSSESSIVE and before not in _ARTICLES
    return is_owner or before in _BY or _has_title(tokens, place) or _is_acting_as(field, tokens, place, vocabulary)


def _is_acting_as(field: str, tokens: Sequence[Token], place: int, vocabulary: Vocabulary) -> bool:
    """Return whether "as" and the name of a field follow a name: "frost as editor", "Frost or Day as the editor"."""
    place += 1
    while place + 1 < len(tokens) and tokens[place].folded in _JOINING:
        place += 2
    behind = [token for token in tokens[place : place + 3] if token.folded not in _ARTICLES]
    return (
        len(behind) > 1
        and behind[0].folded == "as"
        and any(field in vocabulary.cues.get((said,), ()) for said in (behind[1].folded, behind[1].stem))
    )


def _has_title(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a title stands before a name: "Dr. Banks", "Mr Fell"."""
    while place > 0 and tokens[place - 1].text == ".":
        place -= 1
    return place > 0 and tokens[place - 1].folded in lexicon.TITLES


def _is_past_action(tokens: Sequence[Token], place: int) -> bool:
    """Return whether "by" after a word leads to a person: after "chaired", but not after "sorted" ("sorted by day")."""
    word = tokens[place].folded if place >= 0 else ""
    is_past = word.endswith("ed") and not word.endswith("eed")  # but not "speed by Route"
    return (is_past or word in lexicon.PARTICIPLES) and word not in _ARRANGED


def _has_own_capital(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a word's capital shows a name, because another content word of the question has none."""
    others = (one for number, one in enumerate(tokens) if number != place and one.kind == "word")
    is_usual = not any(one.text.islower() and one.folded not in lexicon.STOP_WORDS for one in others)
    return tokens[place].is_capital and not tokens[place].text.isupper() and not is_usual


def _is_written_as_name(tokens: Sequence[Token], place: int) -> bool:
    """Return whether an everyday word is a name by its capital: "Stone found it", but not "May I", "Will there"."""
    token = tokens[place]
    opens = place == 0 or tokens[place - 1].text in ".?!:"
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    goes_on = following is not None and (following.kind != "word" or following.folded not in lexicon.STOP_WORDS)
    return token.is_capital and not token.text.isupper() and (goes_on or not opens)
