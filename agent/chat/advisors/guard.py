"""Guard advisor: refuse questions that contain blocked words or patterns."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import regex
from pydantic import Field

from agent.chat.advisors.base import Call, End
from agent.options.guard_rules import PATTERN, any_matches, compiled, plain
from agent.options.languages import in_chinese
from agent.types import Shape
from retrievers.core.errors import BadRequest
from retrievers.text.glosses import is_chinese

_log = logging.getLogger(__name__)
REFUSALS = ("I cannot help with that here. Please ask something else.", "抱歉，这个问题无法在此回答，请换一个问题。")
"""The default refusal in English and in Chinese."""


_Word = Annotated[str, Field(min_length=1, max_length=200)]


class GuardParameters(Shape):
    """What a request blocks in addition to the setting.

    Attributes:
        words: words and phrases, matched as whole words in any case. Only the setting may use patterns, because a
            hostile pattern could take for ever.
        answer: text returned instead of an answer if one of these words is found.
    """

    words: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=100)]
    answer: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class Guard:
    """Refuses questions without searching or calling a model.

    Only the question is checked, not the turns before it: one refused question must not block the whole conversation.

    Args:
        rules: words, phrases and patterns that block a question, see `compiled`.
        more: the request's own words, in addition to the rules.
    """

    name = "guard"
    order = 200
    parameters: type[Shape] = GuardParameters
    always = True

    def __init__(self, rules: Sequence["str | regex.Pattern[str]"], more: GuardParameters | None = None) -> None:
        self._rules = [compiled(rule) if isinstance(rule, str) else rule for rule in rules]
        self._more = [compiled(word) for word in more.words] if more else []
        self._answer = more.answer if more else None

    def with_parameters(self, parameters: GuardParameters) -> "Guard":
        """Return a guard with the setting's rules that also blocks the request's own words.

        Raises:
            BadRequest: a word is a pattern or holds nothing to compare; `where` is `words.INDEX`.
        """
        for place, word in enumerate(parameters.words):
            if word.startswith(PATTERN) or not plain(word).strip():
                what = "a request can block words and phrases only; patterns belong in the setting GUARD"
                raise BadRequest(what, where=f"words.{place}")
        return Guard(self._rules, parameters)

    async def before(self, call: Call) -> Call:
        question = plain(call.request.question)
        usual = REFUSALS[in_chinese(call.language, is_chinese(question))]
        if _blocks(self._rules, question):
            return replace(call, refusal=usual)
        if _blocks(self._more, question):
            return replace(call, refusal=self._answer or usual)
        return call

    async def after(self, end: End) -> End:
        return end


def _blocks(rules: "Sequence[regex.Pattern[str]]", question: str) -> bool:
    """Return whether a rule blocks a question; rules that take too long to decide block it."""
    try:
        return any_matches(rules, question)
    except TimeoutError:
        _log.warning("the patterns of GUARD took too long for a question, which is refused")
        return True
