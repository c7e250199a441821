"""Guard advisor: refuse questions that contain blocked words or patterns."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import regex
from pydantic import Field

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.options.guard_rules import REGEX_PREFIX, any_rule_matches, compile_rule, normalise_rule_text
from agent.options.languages import uses_chinese
from agent.types import ApiModel
from retrievers.core.errors import BadRequest
from retrievers.text.chinese_dictionary import contains_chinese

_log = logging.getLogger(__name__)
REFUSALS = ("I cannot help with that here. Please ask something else.", "抱歉，这个问题无法在此回答，请换一个问题。")
"""The default refusal in English and in Chinese."""


_Word = Annotated[str, Field(min_length=1, max_length=200)]


class GuardParameters(ApiModel):
    """What a request blocks in addition to the setting.

    Attributes:
        words: words and phrases, matched as whole words in any case. Only the setting may use patterns, because a
            hostile pattern could take for ever.
        answer: text returned instead of an answer if one of these words is found.
    """

    words: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=100)]
    answer: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class GuardAdvisor:
    """Refuses questions without searching or calling a model.

    Only the question is checked, not the turns before it: one refused question must not block the whole conversation.

    Args:
        rules: words, phrases and patterns that block a question, see `compile_rule`.
        more: the request's own words, in addition to the rules.
    """

    name = "guard"
    order = 200
    parameters: type[ApiModel] = GuardParameters
    always = True

    def __init__(self, rules: Sequence["str | regex.Pattern[str]"], more: GuardParameters | None = None) -> None:
        self._rules = [compile_rule(rule) if isinstance(rule, str) else rule for rule in rules]
        self._more = [compile_rule(word) for word in more.words] if more else []
        self._answer = more.answer if more else None

    def with_parameters(self, parameters: GuardParameters) -> "GuardAdvisor":
        """Return a guard with the setting's rules that also blocks the request's own words.

        Raises:
            BadRequest: a word is a pattern or holds nothing to compare; `where` is `words.INDEX`.
        """
        for place, word in enumerate(parameters.words):
            if word.startswith(REGEX_PREFIX) or not normalise_rule_text(word).strip():
                what = "a request can block words and phrases only; patterns belong in the setting GUARD"
                raise BadRequest(what, where=f"words.{place}")
        return GuardAdvisor(self._rules, parameters)

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        question = normalise_rule_text(call.request.question)
        usual = REFUSALS[uses_chinese(call.language, contains_chinese(question))]
        if _blocks(self._rules, question):
            return replace(call, refusal=usual)
        if _blocks(self._more, question):
            return replace(call, refusal=self._answer or usual)
        return call

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        return outcome


def _blocks(rules: "Sequence[regex.Pattern[str]]", question: str) -> bool:
    """Return whether a rule blocks a question; rules that take too long to decide block it."""
    try:
        return any_rule_matches(rules, question)
    except TimeoutError:
        _log.warning("the patterns of GUARD took too long for a question, which is refused")
        return True
