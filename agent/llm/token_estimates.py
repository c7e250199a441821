"""Estimate how many tokens a text takes, without a model's tokeniser."""

import re

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rounding up: 1 per CJK character, 1 per 3.5 other characters."""
    cjk = len(_CJK.findall(text))
    return cjk + -(-(len(text) - cjk) * 2 // 7)


def truncate_to_tokens(text: str, tokens: int) -> str:
    """Return a prefix of the text that takes at most `tokens` tokens by `estimate_tokens`."""
    while (held := estimate_tokens(text)) > tokens:
        text = text[: len(text) * tokens // held]
    return text
