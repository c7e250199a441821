"""Questions that are not answered: those that hold what a setting blocks."""

from collections.abc import Sequence
from dataclasses import replace

from agent.advisors.base import Call, End
from agent.advisors.rules import compiled, plain
from agent.languages import in_chinese
from retrievers.text.glosses import is_chinese

REFUSALS = ("I cannot help with that here. Please ask something else.", "抱歉，这个问题无法在此回答，请换一个问题。")
"""In English and in Chinese."""


class Guard:
    """Refuses questions, without a search or a model call.

    Only the question is looked at, not the turns before it: one refused question must not end a conversation.

    Args:
        rules: see `compiled`.
    """

    order = 200

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [compiled(rule) for rule in rules]

    async def before(self, call: Call) -> Call:
        question = plain(call.request.question)
        if not any(rule.search(question) for rule in self._rules):
            return call
        language = call.pipeline.settings.language if call.pipeline is not None else None
        return replace(call, refusal=REFUSALS[in_chinese(language, is_chinese(question))])

    async def after(self, end: End) -> End:
        return end
