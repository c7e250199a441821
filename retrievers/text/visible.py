"""Clean text for prompts: remove invisible characters and break a tokenizer's control tokens.

A model reads code points, a person reads glyphs. A character without a glyph can carry an instruction, or bytes, past
the person. A prompt keeps such a character only if it changes the adjacent glyphs: a joiner in a script that joins or
stacks letters, the form selector of a Mongolian letter, the parts of an emoji.

Source:
    UAX #44 (Default_Ignorable_Code_Point), UAX #31 section 2.3 (joiners), UTS #51 (emoji sequences).
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from retrievers.text.marks import few_marks

# Controls, spaces of other widths, line separators. The ideographic space (U+3000) is visible as such and kept.
_BLANK = "\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2800"
# Surrogates, private use, noncharacters and unassigned planes have no glyph that a reader could know.
_UNKNOWN = "\ud800-\uf8ff\ufdd0-\ufdef\ufffe\uffff"
_UNKNOWN_BEYOND = "\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U000dffff\U000e1000-\U0010ffff"
# All other characters without a glyph, except those in _FORMING.
_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc"
)
_HIDDEN_BEYOND = (
    "\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0060"
    "\U000e007b-\U000e007e\U000e0080-\U000e0fff"
)
# Mongolian form selectors, joiners, text and emoji selectors, and flag tags: adjacent characters may need them.
_FORMING = "\u180b-\u180f\u200c\u200d\ufe0e\ufe0f"
_FORMING_BEYOND = "\U000e0061-\U000e007a\U000e007f"

# A character class with many ranges beyond U+FFFF is slow, and few texts contain such characters.
_SUSPECT = re.compile(f"[{_BLANK}{_UNKNOWN}{_HIDDEN}{_FORMING}\U00010000-\U0010ffff]")
_BLANK_CHARACTER = re.compile(f"[{_BLANK}]")
_UNKNOWN_RUN = re.compile(f"[{_UNKNOWN}{_UNKNOWN_BEYOND}]+")
_HIDDEN_RUN = re.compile(f"[{_HIDDEN}{_HIDDEN_BEYOND}]+")
_FORMING_RUN = re.compile(f"[{_FORMING}{_FORMING_BEYOND}]+")

_JOINER = re.compile("[\u200c\u200d]")
_ZWJ = "\u200d"
# Arabic, Syriac, N'Ko, Mandaic, Mongolian, Phags-pa, Manichaean, Pahlavi, Rohingya, Sogdian, Chorasmian, Adlam.
_JOINING_SCRIPT = re.compile(
    "[\u0600-\u08ff\u1800-\u18af\ua840-\ua87f\ufb50-\ufdff\ufe70-\ufefc\U00010ac0-\U00010aff\U00010b80-\U00010baf"
    "\U00010d00-\U00010d3f\U00010f30-\U00010f6f\U00010fb0-\U00010fcf\U0001e900-\U0001e94b]"
)
_MONGOLIAN_LETTER = re.compile("[\u1820-\u1878\u1880-\u18aa]")
_MONGOLIAN_SELECTOR = re.compile("[\u180b-\u180d\u180f]")
_VOWEL_SEPARATOR = "\u180e"
_VIRAMA = 9
"""Canonical combining class of signs that stack consonants. A joiner beside such a sign selects the form."""
_KHMER_SHIFTERS = "\u17c9\u17ca"

_EMOJI = re.compile(
    "[©®‼⁉™ℹ\u2190-\u21ff\u2300-\u23ffⓂ\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff〰〽㊗㊙\U0001f000-\U0001faff]"
)
_SELECTOR = re.compile("[\ufe0e\ufe0f]")
_KEYCAP_BASE, _KEYCAP = "0123456789#*", "\u20e3"
_BLACK_FLAG = "\U0001f3f4"
_FLAG_TAGS = re.compile(
    "|".join("".join(chr(0xE0000 + ord(c)) for c in region) + "\U000e007f" for region in ("gbeng", "gbsct", "gbwls"))
)
"""Tags of England, Scotland and Wales: the regions whose flags are emoji."""

_BRACKET = re.compile(r"[<＜\[\]［](?=([^\s<>＜＞\[\]［］]{1,66})[>＞\[\]］])")
# Words that chat templates and tokenizers of common models write between < and >, and between [ and ].
_ANGLE_TOKEN = re.compile(
    r"""
    [|｜].+ | .+[|｜]
    | /?(?:
        s | sys | image | img | think | thinking | tools?
        | (?: bo[is] | so[ipst] | eo[adhimpst] | pad | unk | mask | cls | sep)(?:_token)?
        | (?:tool|function|fim|im|special|reserved)_\w+ | (?:start|begin|end)_(?:of|header)_\w+ | arg_(?:key|value)
        | extra_id_\d+ | (?:tokens_)?unused_?\d+ | (?:dummy|ctrl)_?\d+ | 0x[0-9a-f]{2} | (?:seed|minimax):\w+
        | file_sep | repo_?name | gh_stars | empty_output | jupyter_\w+ | issue_(?:start|comment|closed)
        | commit_(?:before|msg|after) | fake_token_\w+ | global-img | row_\d+_col_\d+ | (?:image|audio)_soft_token
        | image_placeholder | img_context | loc\d{4} | seg\d{3}
    )
    | (?-i: PRE | SUF | MID)  # In small letters, <pre> is HTML.
    """,
    re.IGNORECASE | re.VERBOSE,
)
# In lower case most of these are ordinary words of manuals: [args].
_SQUARE_TOKEN = re.compile(
    r"""
    (?i: /?(?:INST | TOOL_CALLS | TOOL_RESULTS | TOOL_CONTENT | AVAILABLE_TOOLS | SYSTEM_PROMPT | MODEL_SETTINGS))
    | /?(?:THINK | ARGS | CALL_ID | PREFIX | MIDDLE | SUFFIX | IMG | IMG_BREAK | IMG_END | AUDIO | BEGIN_AUDIO
        | CLS | SEP | MASK | [gs]MASK | PAD | UNK | BOS | EOS)
    | ~!?b | e~
    """,
    re.VERBOSE,
)


def prompt_text(text: str) -> str:
    """Return text for a prompt: only visible characters, in NFC, every control token broken by a space ("<
    |im_start|>").

    Consecutive marks are limited, see `few_marks`. The number of lines does not increase.
    """
    text = visible_text(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", few_marks(text))
    elif "<" not in text and "[" not in text and "]" not in text:
        return text
    return _BRACKET.sub(_broken, text)


def prompt_value(value: Any) -> Any:
    """Apply `prompt_text` to all strings of a JSON value, including keys."""
    if isinstance(value, str):
        return prompt_text(value)
    if isinstance(value, Mapping):
        return {prompt_value(key): prompt_value(one) for key, one in value.items()}
    return [prompt_value(one) for one in value] if isinstance(value, list | tuple) else value


def visible_text(text: str, mark: str = "") -> str:
    """Remove invisible characters, except one joiner between letters that need it and parts of emoji.

    Controls, unusual spaces and line separators become a space, a carriage return a line feed. A run of surrogates,
    private use characters and noncharacters becomes U+FFFD.

    Args:
        mark: replacement for every run of removed invisible characters.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text  # Most texts, at a tenth of the cost.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if _SUSPECT.search(text):
        text = _BLANK_CHARACTER.sub(" ", _UNKNOWN_RUN.sub("\ufffd", text))
        text = _FORMING_RUN.sub(lambda run: _needed(run, mark), _HIDDEN_RUN.sub(mark, text))
    return text


def _needed(found: re.Match[str], mark: str) -> str:
    """Return the part of a run that the adjacent characters need, and the mark in place of the rest."""
    run, text = found[0], found.string
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    kept = _of_emoji(before, run, after) or _of_mongolian(before, run, after) or _of_letters(before, run, after)
    return kept if kept == run else kept + mark


def _of_emoji(before: str, run: str, after: str) -> str:
    """Return the selector of the emoji's form and a joiner to the next emoji, or the tags of a flag."""
    if before == _BLACK_FLAG and (tags := _FLAG_TAGS.match(run)):
        return tags[0]
    if before and before in _KEYCAP_BASE and after == _KEYCAP and "\ufe0f" in run:
        return "\ufe0f"
    if not _EMOJI.match(before):
        return ""
    selector = _SELECTOR.search(run)
    joiner = _ZWJ if _ZWJ in run and _EMOJI.match(after) else ""
    return (selector[0] if selector else "") + joiner


def _of_mongolian(before: str, run: str, after: str) -> str:
    """Return the selector of the letter's form and the separator before a following letter."""
    if not _MONGOLIAN_LETTER.match(before):
        return ""
    selector = _MONGOLIAN_SELECTOR.search(run)
    separator = _VOWEL_SEPARATOR if _VOWEL_SEPARATOR in run and _MONGOLIAN_LETTER.match(after) else ""
    return (selector[0] if selector else "") + separator


def _of_letters(before: str, run: str, after: str) -> str:
    """Return one joiner if it changes the adjacent letters, else ""."""
    joiner = _JOINER.search(run)
    if joiner is None or before.isascii():
        return ""
    stacks = unicodedata.combining(before) == _VIRAMA or before in _KHMER_SHIFTERS
    stacks = stacks or (before.isalpha() and after != "" and unicodedata.combining(after) == _VIRAMA)
    # At the end of a word, a joiner shows the letter as if another letter followed.
    joins = _joins(before) and (_joins(after) or (joiner[0] == _ZWJ and not after.isalnum()))
    return joiner[0] if stacks or joins else ""


def _joins(character: str) -> bool:
    return _JOINING_SCRIPT.match(character) is not None and unicodedata.category(character)[0] in "LM"


def _broken(found: re.Match[str]) -> str:
    """Return the bracket, followed by a space if a control token begins there."""
    bracket, name = found[0], found[1]
    return f"{bracket} " if _is_token(bracket in "<＜", name) else bracket


@lru_cache(maxsize=1024)
def _is_token(angle: bool, name: str) -> bool:
    return (_ANGLE_TOKEN if angle else _SQUARE_TOKEN).fullmatch(name) is not None
