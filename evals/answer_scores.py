"""Judge an answer's text without a model: by its wording, the documents it cites, and whether it rightly declines."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from agent.answering.number_forms import extract_amounts
from agent.answering.sentences import cited_numbers, sentence_spans, without_citations
from agent.types import Answer, Citation, Result

_NOTHING_FOUND = frozenset({"weak", "nothing_found", "refused"})
_THOUSANDS = re.compile(r"(?<=\d)[,'’\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_PERCENT = re.compile(r"\s*(?:%|\bper\s?cent\b)")
_HAN_AND_KANA = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED = re.compile(f"[{_HAN_AND_KANA}]")
"""Matches a letter of a script that has no blanks between words."""
_TOKEN = re.compile(rf"[{_HAN_AND_KANA}]+|[^\W\d_{_HAN_AND_KANA}]+|\d+(?:\.\d+)*|%")
_BETWEEN_WORDS = re.compile(r"(?<!\d) | (?!\d)")
_NO_DECIMALS = re.compile(r"(\d+)\.0+")
_PLAIN_NUMBER = re.compile(r"[$€£¥]?(-?(?:0|[1-9]\d*)(?:\.\d+)?)%?")
_LEAST_DECIMALS = 2
"""Minimum number of decimals of a number in an answer that may be a rounded gold number."""


def score_answer(answer: Answer, *, gold: Any, relevant: Collection[str]) -> dict[str, float | None]:
    """Return the measures of an answer, each in [0, 1] or None; a measure that does not apply may be left out.

    `answer_match` judges the text that the caller got: the passages, if no model answered. The other measures apply
    only to the text of a model. `supported` is the share of its sentences with a claim that the passages support, as
    the service checked them; sentences for which the check could not decide are not counted.

    Args:
        gold: the expected answer; None if there is none.
        relevant: ids of the right documents; empty if they are not judged.
    """
    by_model = answer.model is not None
    found: dict[str, float | None] = {
        "answer_match": answer_match(gold, answer.answer),
        "supported": answer.faithfulness if by_model else None,
    }
    if by_model and relevant:
        documents = cited_documents(answer)
        right = sum(id in relevant for id in documents)
        # An answer that cites nothing gives its reader no document to rely on.
        found["citation_precision"] = right / len(documents) if documents else 0.0
        found["citation_recall"] = right / len(relevant)
    return found


def missing_answer_scores(*, gold: Any) -> dict[str, float | None]:
    """Return the measures of a question that got no answer."""
    return {"answer_match": None if answer_match(gold, "") is None else 0.0}


def refused_right(result: Result | None, answerable: bool) -> float | None:
    """Return 1 if a question without an answer in the documents is not answered, 0 if it is; None for other questions.

    It is not answered if the status is `weak`, `nothing_found` or `refused`, or if a model's answer says that nothing
    was found. A question that failed (None) counts as answered.
    """
    if answerable:
        return None
    if result is None:
        return 0.0
    is_declined = isinstance(result, Answer) and result.model is not None and not result.answered
    return float(result.status in _NOTHING_FOUND or is_declined)


def cited_documents(answer: Answer) -> list[str]:
    """Return the ids of the documents that the text of a model cites, in order, each once."""
    return list(dict.fromkeys(one.document_id for one in cited_passages(answer)))


def cited_passages(answer: Answer) -> list[Citation]:
    """Return the passages that the text of a model cites, in order, each once.

    Citations that only the check of sentences added are not part of the text.
    """
    by_number = {one.n: one for one in answer.citations}
    numbers = dict.fromkeys(n for sentence in answer.sentences for n in cited_numbers(sentence.text))
    return [by_number[n] for n in numbers if n in by_number]


def answer_match(gold: Any, text: str) -> float | None:
    """Return 1 if the text contains the expected answer, 0 if not, None if nothing is expected.

    A gold text must occur as whole words; case, width, punctuation, thousands separators and the spelling of percent
    are ignored. A gold number, or a gold text that is only a number, must equal a number of the text, in digits or
    English words; the text may round it to two or more decimals. All items of a gold list or object must occur.

    Args:
        gold: text, number, list or object; None, True, False and texts without a letter or digit expect nothing.
        text: the answer; citations and the numbers of list items are ignored.
    """
    wanted = [one for one in _items(gold) if _tokens(str(one))]
    if not wanted:
        return None
    prose = " ".join(text[span.start : span.end] for span in sentence_spans(text, code=True))
    prose = _plain(without_citations(prose))
    numbers = set(_numbers(prose))
    return float(all(_holds(one, prose, numbers) for one in wanted))


def _items(gold: Any) -> Iterator[str | float]:
    """Yield the texts and numbers of a gold value."""
    if isinstance(gold, Mapping):
        for key, value in gold.items():
            yield from (*_items(str(key)), *_items(value))
    elif isinstance(gold, list | tuple):
        for one in gold:
            yield from _items(one)
    elif isinstance(gold, str | int | float) and not isinstance(gold, bool):
        yield gold


def _holds(gold: str | float, prose: str, numbers: Collection[Decimal]) -> bool:
    """Return whether a prose contains one item of the expected answer.

    Args:
        prose: a text in the form of `_plain`.
        numbers: the numbers of the prose.
    """
    number = _plain_number(_plain(gold)) if isinstance(gold, str) else Decimal(str(gold))
    return _occurs(str(gold), prose) if number is None else any(_equal(number, one) for one in numbers)


def _plain(text: str) -> str:
    """Return the text in one case and width, without thousands separators, and with the sign for percent."""
    # NFKC turns the thin and fixed blanks between thousands into plain ones.
    text = unicodedata.normalize("NFKC", _THOUSANDS.sub("", text)).replace("−", "-").casefold()
    return _PERCENT.sub("%", _THOUSANDS.sub("", text))


def _plain_number(text: str) -> Decimal | None:
    """Return the number that is the whole text; None for other texts, such as "007" and "2.1.0"."""
    found = _PLAIN_NUMBER.fullmatch(text.strip())
    return Decimal(found[1]) if found else None


def _numbers(prose: str) -> Iterator[Decimal]:
    for ways in extract_amounts(prose):
        for way in ways:
            try:
                yield Decimal(way)
            except InvalidOperation:  # a version number
                continue


def _equal(gold: Decimal, said: Decimal) -> bool:
    if gold == said:
        return True
    decimals = -int(said.as_tuple().exponent)
    return decimals >= _LEAST_DECIMALS and round(gold, decimals) == said


def _occurs(gold: str, prose: str) -> bool:
    """Return whether a prose contains the words of a text, one directly after the other."""
    wanted, held = _tokens(gold), _tokens(prose)
    if _UNSPACED.search(gold):
        before = r"(?<![\d.])" if wanted[0][0].isdigit() else ""
        after = r"(?![\d.])" if wanted[-1][-1].isdigit() else ""
        return re.search(before + re.escape(_joined(wanted)) + after, _joined(held)) is not None
    return any(held[n : n + len(wanted)] == wanted for n in range(len(held) - len(wanted) + 1))


def _joined(tokens: Iterable[str]) -> str:
    """Return tokens without blanks, as in Chinese and Japanese; numbers stay apart."""
    return _BETWEEN_WORDS.sub("", " ".join(tokens))


def _tokens(text: str) -> list[str]:
    """Return the words, numbers and percent signs of a text, without zero decimals: "Costs 12.00 %" -> costs, 12, %."""
    found: Iterable[str] = _TOKEN.findall(_plain(text))
    return [_NO_DECIMALS.sub(r"\1", one) if _NO_DECIMALS.fullmatch(one) else one for one in found]
