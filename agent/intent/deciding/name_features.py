"""Features of a name itself, for `features`: how it matches its value, and how it is written."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.intent.analysis.sentence import QUOTES, Sentence
from agent.intent.language import lexicon
from agent.intent.language.text import chinese_pairs, has_chinese
from agent.intent.values.value_match import DISTANT
from agent.intent.words import word_frequencies

if TYPE_CHECKING:
    from agent.intent.deciding.features import Candidate


def match_features(sentence: Sentence, one: "Candidate") -> Iterator[tuple[str, float]]:
    """Yield (feature, number) for how the name of the candidate `one` is related to its value."""
    first = one.matches[0]
    others = (known for known in one.mention.matches if known.field != one.field)
    yield f"how {first.kind}", 1.0
    yield "words", float(one.mention.last - one.mention.first)
    yield "characters", float(one.mention.end - one.mention.start)
    yield "share", first.share
    yield "values", float(len(one.matches))
    yield "plural", float(sentence.tokens[one.mention.last - 1].folded not in first.value.casefold())
    said, value = sentence.text[one.mention.start : one.mention.end].casefold(), first.value.casefold()
    yield "inflected", float(first.kind == "stem" and not _is_plural(said, value))
    yield "closer elsewhere", float(first.kind in DISTANT and any(known.kind not in DISTANT for known in others))
    yield "is noun", float(said in lexicon.DOCUMENT_NOUNS or said in lexicon.CHINESE_DOCUMENT_NOUNS)
    yield "of value", round(len(said) / len(value), 2) if said in value else 0.0
    yield "ends value", float(said != value and value.endswith(said))
    yield "begins value", float(said != value and value.startswith(said))


def _is_plural(said: str, value: str) -> bool:
    """Return whether the name is the value in singular or plural; False for another form: "resolver" of "resolved"."""
    return said in (value, f"{value}s", f"{value}es", f"{value[:-1]}ies") or value in (f"{said}s", f"{said}es")


def surface_features(sentence: Sentence, one: "Candidate") -> Iterator[tuple[str, float]]:
    """Yield (feature, number) for how a name is written, and how common its words are in texts and documents."""
    mention = one.mention
    tokens = [token for token in sentence.tokens[mention.first : mention.last] if token.kind != "mark"]
    text = sentence.text[mention.start : mention.end]
    yield "capital", float(tokens[0].is_capital and mention.first > 0)
    yield "all capitals", float(text.isupper() and len(text) > 1)
    yield "first capital", float(tokens[0].is_capital and mention.first == 0)
    yield "nothing capital", float(not any(token.is_capital for token in sentence.tokens[1:]))
    yield "as stored", float(text == one.matches[0].value and text != text.lower())
    yield "digits", float(any(c.isdigit() for c in text))
    yield "marked", float(any(c in "-_/.:@" for c in text))
    yield "quoted", float(sentence.text[mention.start - 1 : mention.start] in QUOTES and mention.start > 0)
    yield "chinese", float(has_chinese(text))
    common = word_frequencies()
    yield "ordinary", float(min(common.get(token.stem, 0) for token in tokens)) if not has_chinese(text) else 3.0
    yield "stop word", float(all(token.folded in lexicon.STOP_WORDS for token in tokens))
    words = (*(token.folded for token in tokens), *chinese_pairs(tokens))
    frequencies = [sentence.frequencies[word] for word in words if word in sentence.frequencies]
    share = min(frequencies) if frequencies else -1.0
    documents = max(sentence.vocabulary.catalogue.documents, 1)
    held = one.documents / documents
    yield "in texts", round(math.log10(share + 1e-4), 2) if share >= 0 else -5.0
    yield "of documents", round(math.log10(held + 1e-4), 2)
    yield "texts to documents", round(math.log10((share + 1e-3) / (held + 1e-3)), 2) if share >= 0 else 0.0
