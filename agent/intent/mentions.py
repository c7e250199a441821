"""Where a question names values of the collection: the longest name at each place."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.intent import lexicon
from agent.intent.text import Token, has_chinese, stem, words_of
from agent.intent.vocabulary import Known, Vocabulary
from retrievers.text.glosses import glossed_words

_BREAKS = frozenset(',.;:?!，。；：？！、()（）"“”‘’「」『』《》|/')
_OPENS = tuple("的和与或在由被是为有含及于讲除按把对给让比、")
# First names and the like that are also everyday words: only after "by" or beside another part of the name.
_EVERYDAY = frozenset(
    """
    will mark may bill grant rich dale art hope faith joy grace dawn june april august rose lily ivy
    frank jack guy max ray rob sue pat drew chase hunter major young long short brown white black green
    king page bell wood stone field hill lake rivers banks day love best good small little price cook
    baker miller smith carter porter parker mason turner walker singer fisher gardener law lane west
    north east south win van den der
    """.split()
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A name at a place: tokens [first, last), characters [start, end)."""

    first: int
    last: int
    start: int
    end: int
    known: tuple[Known, ...]

    def of(self, *fields: str) -> tuple[Known, ...]:
        """What the name means in these fields."""
        return tuple(one for one in self.known if one.field in fields)


def find_mentions(
    tokens: Sequence[Token], vocabulary: Vocabulary, more: Sequence[tuple[str, str, int]] = ()
) -> list[Mention]:
    """Names of values in a question, not overlapping, in their order.

    Args:
        more: (field, value, documents) that were looked up because their field has too many to know.
    """
    names = dict(vocabulary.names)
    longest = vocabulary.longest
    for words, known in _looked_up(more).items():
        names[words] = (*names.get(words, ()), *known)
        longest = max(longest, len(words))
    found: list[Mention] = []
    place = 0
    while place < len(tokens):
        mention = _longest(tokens, place, names, vocabulary, longest)
        if mention is None:
            place += 1
        else:
            found.append(mention)
            place = mention.last
    found += _translated(
        tokens, vocabulary, {index for mention in found for index in range(mention.first, mention.last)}
    )
    taken = {index for mention in found for index in range(mention.first, mention.last)}
    found += _misspelt(tokens, vocabulary, taken)
    return sorted(found, key=lambda mention: mention.first)


def _looked_up(more: Sequence[tuple[str, str, int]]) -> dict[tuple[str, ...], tuple[Known, ...]]:
    found: dict[tuple[str, ...], tuple[Known, ...]] = {}
    for name, value, documents in more:
        words = words_of(value)
        found[words] = (*found.get(words, ()), Known(name, value, "exact", documents))
        if len(words) > 1 and not has_chinese(value):
            for word in {words[0], words[-1]}:
                found[(word,)] = (*found.get((word,), ()), Known(name, value, "part", documents))
    return found


def _longest(
    tokens: Sequence[Token],
    place: int,
    names: dict[tuple[str, ...], tuple[Known, ...]],
    vocabulary: Vocabulary,
    longest: int,
) -> Mention | None:
    if tokens[place].kind == "mark":
        return None
    words: list[str] = []
    stems: list[str] = []
    best: Mention | None = None
    for last in range(place, min(place + 2 * longest, len(tokens))):
        token = tokens[last]
        if token.kind == "mark":
            initial = token.text == "." and words and len(words[-1]) == 1
            if token.text in _BREAKS and not initial:
                break
            continue
        if _in_identifier(tokens, last):
            break
        words.append(token.folded)
        stems.append(token.stem)
        if len(words) > longest:
            break
        known = names.get(tuple(words), ())
        if not known:
            known = vocabulary.stems.get(tuple(stems), ())
        known = tuple(one for one in known if _is_meant(one, tokens, place, last + 1))
        if known:
            best = Mention(place, last + 1, tokens[place].start, token.end, known)
    return best


def _in_identifier(tokens: Sequence[Token], index: int) -> bool:
    """Whether a word is part of a name in code: process_time, os.process, process()."""
    token = tokens[index]
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if before is not None and before.text in ("_", "`") and before.end == token.start:
        return True
    if after is not None and after.text in ("_", "`") and after.start == token.end:
        return True
    following = tokens[index + 1 : index + 3]
    called = (
        len(following) == 2
        and following[0].text == "("
        and following[1].text == ")"
        and following[0].start == token.end
    )
    dotted = (
        len(following) == 2
        and following[0].text == "."
        and following[0].start == token.end
        and following[1].kind == "word"
        and following[1].start == following[0].end
        and not token.is_capital
    )
    return called or dotted


def _is_meant(known: Known, tokens: Sequence[Token], first: int, last: int) -> bool:
    """Whether the word can be that value here: a first name alone must be written as a name."""
    if known.how == "part":
        word = tokens[first]
        before = tokens[first - 1].folded if first else ""
        by = before in ("by", "from", "to", "由")
        if last - first > 1:
            return True
        if (
            before in ("in", "at", "near", "within")
            or (word.folded in _EVERYDAY and not by)
            or word.folded in lexicon.STOP_WORDS
        ):
            return False
        if not word.is_capital and not (len(word.text) > 4 and (by or (first == 0 and _heads(tokens, last)))):
            return False
        following = tokens[last] if last < len(tokens) else None
        # "Guido Smith" is somebody else.
        return not (
            following is not None
            and following.kind == "word"
            and following.is_capital
            and following.start == word.end + 1
            and not following.text.isupper()
        )
    return True


def _heads(tokens: Sequence[Token], last: int) -> bool:
    """ "hettinger on iteration": a name that stands at the head, in whatever case."""
    return last < len(tokens) and (
        tokens[last].folded in ("on", "about", ":", "and", "or", "写", "的") or tokens[last].text in ("'", "’")
    )


def _translated(tokens: Sequence[Token], vocabulary: Vocabulary, taken: set[int]) -> list[Mention]:
    """Chinese words whose English, by the dictionary, is a value of one word: 石棉 is asbestos."""
    runs: list[list[int]] = []
    for index, token in enumerate(tokens):
        if token.kind == "cjk" and index not in taken:
            if runs and runs[-1][-1] == index - 1:
                runs[-1].append(index)
            else:
                runs.append([index])
    if not runs or not vocabulary.english:
        return []
    found: list[Mention] = []
    for run in runs:
        text = "".join(tokens[index].text for index in run)
        for start, word, english in glossed_words(text):
            # A part of a longer term is no value: 子进程 is no process.
            if start and not text[:start].endswith(_OPENS) or words_of(word) in vocabulary.cues:
                continue
            known = {one for gloss in english for one in vocabulary.english.get(stem(gloss), ())}
            if known:
                first, last = run[start], run[start + len(word) - 1]
                meant = tuple(
                    Known(one.field, one.value, "translated", one.documents)
                    for one in sorted(known, key=lambda one: -one.documents)
                )
                found.append(Mention(first, last + 1, tokens[first].start, tokens[last].end, meant[:1]))
    return found


def _misspelt(tokens: Sequence[Token], vocabulary: Vocabulary, taken: set[int]) -> list[Mention]:
    found: list[Mention] = []
    place = 0
    while place < len(tokens):
        mention = None
        for size in (3, 2, 1):
            run = tokens[place : place + size]
            if len(run) < size or any(t.kind != "word" or place + n in taken for n, t in enumerate(run)):
                continue
            if any(after.start - before.end > 1 for before, after in zip(run, run[1:], strict=False)):
                continue
            words = [token.folded for token in run]
            if size > 1:
                known = vocabulary.similar(words, person=True) if all(t.is_capital for t in run) else ()
            elif words[0] in lexicon.STOP_WORDS or words[0] in lexicon.DOCUMENT_NOUNS or (words[0],) in vocabulary.cues:
                known = ()
            else:
                known = vocabulary.similar(words, person=False)
            if known:
                mention = Mention(place, place + size, run[0].start, run[-1].end, known)
                break
        if mention:
            found.append(mention)
            place = mention.last
        else:
            place += 1
    return found
