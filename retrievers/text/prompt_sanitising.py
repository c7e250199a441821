"""Clean text for prompts: remove invisible characters and break a tokenizer's control tokens.

A model reads code points, a person reads glyphs. A character without a glyph can carry an instruction, or bytes, past
the person. A prompt keeps such a character only if it changes the adjacent glyphs: a joiner in a script that joins or
stacks letters, the form selector of a Mongolian letter, the parts of an emoji. The exceptions are two places where
Persian writes a joiner that changes no glyph, see `_of_joined_letters`.

A text can still choose between two visible forms: a joined and a separate letter, a picture and a sign. Two limits
remain. Every Mongolian letter may have every form selector, because there is no list here of the forms that exist. The
joiners of emoji are checked pair by pair, so "man, man" keeps a joiner although this pair occurs only in longer
sequences.

Source:
    UAX #44 (Default_Ignorable_Code_Point), UAX #31 section 2.3 (joiners), UTS #51 (emoji sequences), The Unicode
    Standard section 9.2 (joining types).
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import regex

from retrievers.text.pieces import text_pieces
from retrievers.text.unicode_normalisation import limit_marks

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
_VISIBLE = re.compile(f"[^\\s{_BLANK}{_HIDDEN}{_HIDDEN_BEYOND}{_FORMING}{_FORMING_BEYOND}]")
_FORMING_RUN = re.compile(f"[{_FORMING}{_FORMING_BEYOND}]+")

_JOINER = re.compile("[\u200c\u200d]")
_ZWNJ, _ZWJ = "\u200c", "\u200d"
_JOINS_NEXT = regex.compile(r"[\p{Joining_Type=D}\p{Joining_Type=L}\p{Joining_Type=C}]")
_JOINS_PREVIOUS = regex.compile(r"[\p{Joining_Type=D}\p{Joining_Type=R}\p{Joining_Type=C}]")
_LATIN_OR_DIGIT = regex.compile(r"[\p{Latin}\p{Nd}]")
_ARABIC_LETTER = regex.compile(r"(?V1)[\p{Arabic}&&\p{L}]")
_PERSIAN_PLURAL = "ها"
_MONGOLIAN_LETTER = re.compile("[\u1820-\u1878\u1880-\u18aa]")
_MONGOLIAN_SELECTOR = re.compile("[\u180b-\u180d\u180f]")
_VOWEL_SEPARATOR = "\u180e"
_VIRAMA = 9
"""Canonical combining class of signs that stack consonants. A joiner beside such a sign selects the stack's form."""
_STACKS_NOTHING = "\u0e3a\u0eba\u103a"
"""Signs of this class that are always visible and stack nothing: Thai phinthu, Lao virama, Myanmar asat."""
_TATWEEL = "\u0640"
"""A line that lengthens a joined letter. It looks the same beside a joiner."""
_KHMER_SHIFTERS = "\u17c9\u17ca"
_BLOCK = 128
"""Number of code points of the block of an Indic script."""

_TEXT_BY_DEFAULT = regex.compile(r"(?V1)[\p{Emoji}--\p{Emoji_Presentation}--\p{ASCII}]")
"""Emoji that are shown as signs unless a selector follows.

All other emoji are pictures. Selectors after them are removed: U+FE0F has no effect there, U+FE0E on some only.
"""
_SELECTOR = re.compile("[\ufe0e\ufe0f]")
_SKIN_TONE = re.compile("[\U0001f3fb-\U0001f3ff]")
# The left emoji of a line may be joined to the right ones (skin tones and selectors left out), Unicode 17.
_EMOJI_SEQUENCES = """
⛹🏃🏄🏊🏋🏌👮👯👰👱👳👷💁💂💆💇🕵🙅🙆🙇🙋🙍🙎🚣🚴🚵🚶🤦🤵🤷🤸🤹🤼🤽🤾🦸🦹🧍🧎🧏🧔🧖🧗🧘🧙🧚🧛🧜🧝🧞🧟 ♀♂
👨👩🧑 ⚕⚖✈🌾🍳🍼🎓🎤🎨🏫🏭💻💼🔧🔬🚀🚒🦯🦰🦱🦲🦳🦼🦽❤🤝🐰🫯
👨👩 👨👩👦👧
🧑 🎄🩰🧑🧒
👦 👦
👧 👦👧
🧒 🧒
❤ 💋👨👩🧑🔥🩹
💋🤝🐰🫯 👨👩🧑
🫱 🫲
🏃🚶🧎♀♂🦯🦼🦽 ➡
🏳 🌈⚧
🏴 ☠
🐈 ⬛
🐦 ⬛🔥
🐕 🦺
🐻 ❄
👁 🗨
😮 💨
😵 💫
😶 🌫
🙂 ↔↕
⛓ 💥
🍄 🟫
🍋 🟩
"""
_JOINED_EMOJI = frozenset(
    one + other
    for left, right in (line.split() for line in _EMOJI_SEQUENCES.split("\n") if line)
    for one in left
    for other in right
)
_KEYCAP_BASE, _KEYCAP = "0123456789#*", "\u20e3"
_BLACK_FLAG = "\U0001f3f4"
_FLAG_TAGS = re.compile(
    "|".join("".join(chr(0xE0000 + ord(c)) for c in region) + "\U000e007f" for region in ("gbeng", "gbsct", "gbwls"))
)
"""Tags of England, Scotland and Wales: the regions whose flags are emoji."""


def _forms(characters: str) -> str:
    """Return the characters and their compatibility forms, which NFKC turns into them, for a character class."""
    # All such forms are among the compatibility and the full-width forms, U+FE30 to U+FFEF.
    codes = (*range(0x80), *range(0xFE30, 0xFFF0))
    return re.escape("".join(chr(code) for code in codes if unicodedata.normalize("NFKC", chr(code)) in characters))


_BRACKET = re.compile(rf"[{_forms('<[]')}](?=([^\s{_forms('<>[]')}]{{1,66}})[{_forms('>[]')}])")
# Words that chat templates and tokenizers of common models write between < and >, and between [ and ]. Names are
# compared in NFKC. <role> and <ref> are left alone: they are as common in XML.
_ANGLE_TOKEN = re.compile(
    r"""
    \|.+ | .+\|
    | /?(?:
        s | sys | image | img | think | thinking | tools?
        | (?: bo[is] | so[ipst] | eo[acdhimprst] | pad | unk | mask | cls | sep)(?:_token)?
        | (?:tool|function|fim|im|special|reserved)_\w+
        | (?:start|begin(?:ning)?|end)_(?:of|header|function)_\w+ | arg_(?:key|value)
        | extra_id_\d+ | (?:tokens_)?unused_?\d+ | (?:dummy|ctrl)_?\d+ | 0x[0-9a-f]{2} | (?:seed|minimax):\w+
        | file_sep | repo_?name | gh_stars | empty_output | jupyter_\w+ | issue_(?:start|comment|closed)
        | commit_(?:before|msg|after) | fake_token_\w+ | global-img | row_\d+_col_\d+ | (?:image|audio)_soft_token
        | image_placeholder | img_context | loc\d{4} | seg\d{3}
    )
    | mask_\d+ | extra_tokens?_\d+ | toolcall | available_tools | _(?:user|bot|assistant|system|end)
    | (?-i: PRE | SUF | MID | [BC]_[A-Z]{1,6})  # In small letters, <pre> is HTML.
    | (?-i: escape)  # With a capital, <Escape> is a key.
    """,
    re.IGNORECASE | re.VERBOSE,
)
# In lower case most of these are ordinary words of manuals: [args].
_SQUARE_TOKEN = re.compile(
    r"""
    (?i: /?(?:INST | TOOL_CALLS | TOOL_RESULTS | TOOL_CONTENT | AVAILABLE_TOOLS | SYSTEM_PROMPT | MODEL_SETTINGS))
    | /?(?:THINK | ARGS | CALL_ID | PREFIX | MIDDLE | SUFFIX | IMG | IMG_BREAK | IMG_END | AUDIO | BEGIN_AUDIO
        | TRANSCRIBE | STREAMING_PAD | CLS | SEP | MASK | [gs]MASK | PAD | UNK | BOS | EOS | SOT | EOT)
    | \|\w+\| | (?i: unused_?(?:token_)?\d+ | extra_id_\d+)
    | ~!?b | e~
    """,
    re.VERBOSE,
)


_MOST_PASSES = 4
"""Most texts need one or two. A text that needs more loses its joiners."""


def sanitise_prompt_text(text: str) -> str:
    """Return text for a prompt: visible characters only, in NFC, with a space in every control token ("< |im_start|>").

    Runs of combining marks are cut, see `limit_marks`. The number of lines does not increase. A second call changes
    nothing.
    """
    for _ in range(_MOST_PASSES):
        given, text = text, _nfc(remove_invisible(text))
        # NFC reorders marks and joins them to letters. The removal of a joiner makes this possible at another place.
        if text == given or not _SUSPECT.search(text):
            break
    else:
        text = _nfc(_FORMING_RUN.sub("", text))
    if text.isascii() and "<" not in text and "[" not in text and "]" not in text:
        return text
    return _BRACKET.sub(_broken, text)


def sanitise_prompt_value(value: Any) -> Any:
    """Apply `sanitise_prompt_text` to all strings of a JSON value, including keys.

    If several keys of an object become equal, the one that needed no change is kept, or else the first.
    """
    if isinstance(value, str):
        return sanitise_prompt_text(value)
    if isinstance(value, Mapping):
        shown: dict[Any, Any] = {}
        for key, one in value.items():
            name = sanitise_prompt_value(key)
            if name == key or not (name in value or name in shown):
                shown[name] = sanitise_prompt_value(one)
        return shown
    return [sanitise_prompt_value(one) for one in value] if isinstance(value, list | tuple) else value


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character."""
    return not any(_VISIBLE.search(piece) for piece in text_pieces(text))


def remove_invisible(text: str, mark: str = "") -> str:
    """Remove invisible characters, except parts of emoji and one joiner or selector where adjacent letters need it.

    A control character, unusual space or line separator becomes a space, a carriage return a line feed. A run of
    surrogates, private use characters and noncharacters becomes U+FFFD.

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


def _nfc(text: str) -> str:
    few = limit_marks(text)
    normal = unicodedata.normalize("NFC", few)
    # NFC splits a few letters into a letter and a mark.
    return normal if normal == few else unicodedata.normalize("NFC", limit_marks(normal))


def _needed(found: re.Match[str], mark: str) -> str:
    """Return those characters of a matched run of joiners and selectors that the adjacent characters need.

    Args:
        mark: appended if the run has other characters, too.
    """
    run, text = found[0], found.string
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    kept = _of_emoji(before, run, after, text[found.start() - 2 : found.start() - 1])
    kept = kept or _of_mongolian(before, run, after) or _of_letters(found, before, after)
    return kept if kept == run else kept + mark


def _of_emoji(before: str, run: str, after: str, earlier: str) -> str:
    """Return the selector of the emoji's form and a joiner to the next emoji, or the tags of a flag; "" if not needed.

    Args:
        before, after: the characters next to the run.
        run: invisible characters between `before` and `after`.
        earlier: the character in front of `before`. It is the emoji if `before` is a skin tone.
    """
    if before == _BLACK_FLAG and (tags := _FLAG_TAGS.match(run)):
        return tags[0]
    if before and before in _KEYCAP_BASE and after == _KEYCAP and "\ufe0f" in run:
        return "\ufe0f"
    selector = _SELECTOR.search(run) if _TEXT_BY_DEFAULT.match(before) else None
    emoji = earlier if _SKIN_TONE.match(before) else before
    joiner = _ZWJ if _ZWJ in run and emoji + after in _JOINED_EMOJI else ""
    return (selector[0] if selector else "") + joiner


def _of_mongolian(before: str, run: str, after: str) -> str:
    """Return the selector of a Mongolian letter's form and the separator before the next letter; "" if not needed."""
    if not _MONGOLIAN_LETTER.match(before):
        return ""
    selector = _MONGOLIAN_SELECTOR.search(run)
    separator = _VOWEL_SEPARATOR if _VOWEL_SEPARATOR in run and _MONGOLIAN_LETTER.match(after) else ""
    return (selector[0] if selector else "") + separator


def _of_letters(found: re.Match[str], before: str, after: str) -> str:
    """Return one joiner if the adjacent letters need it, else ""."""
    joiner = _JOINER.search(found[0])
    if joiner is None or not before:
        return ""
    letter = _letter_before(found.string, found.start())
    if _TATWEEL in (before, after) or before in _STACKS_NOTHING:
        needed = False
    elif unicodedata.combining(before) == _VIRAMA or before in _KHMER_SHIFTERS:
        # At the end of a word, a sign without a joiner already stands alone.
        needed = _share_script(letter, before) and (joiner[0] == _ZWJ or _share_script(before, after))
    elif after and unicodedata.combining(after) == _VIRAMA:
        needed = _share_script(before, after) and before.isalpha()
    else:
        needed = _of_joined_letters(joiner[0], letter, after, found.string[found.end() : found.end() + 2])
    return joiner[0] if needed else ""


def _of_joined_letters(joiner: str, before: str, after: str, word: str) -> bool:
    """Return whether the joiner changes if the adjacent letters are written joined, as in Arabic script.

    Also True where Persian writes a joiner although the letters would not join: between a Latin letter or a digit and
    an ending, and in front of the plural ending.

    Args:
        word: the two characters after the joiner.
    """
    joins_next = _JOINS_NEXT.match(before) is not None
    joins_previous = _JOINS_PREVIOUS.match(after) is not None
    if joiner == _ZWJ:
        # At the end of a word, the joiner gives a letter the form that it has in front of another letter.
        return joins_next and not joins_previous and not (after and unicodedata.category(after)[0] == "M")
    if joins_next or _LATIN_OR_DIGIT.match(before):
        return joins_previous
    return word == _PERSIAN_PLURAL and _ARABIC_LETTER.match(before) is not None


def _letter_before(text: str, end: int) -> str:
    """Return the last character before `end` that is not a mark; "" if there is none."""
    while end and unicodedata.category(text[end - 1])[0] == "M":
        end -= 1
    return text[end - 1 : end] if end else ""


def _share_script(one: str, other: str) -> bool:
    return one != "" and other != "" and ord(one) // _BLOCK == ord(other) // _BLOCK


def _broken(found: re.Match[str]) -> str:
    """Return the matched bracket "<" or "[", with a space after it if it begins a control token."""
    bracket, name = found[0], found[1]
    return f"{bracket} " if _is_token(bracket, name) else bracket


@lru_cache(maxsize=1024)
def _is_token(bracket: str, name: str) -> bool:
    if not (bracket.isascii() and name.isascii()):
        bracket, name = (unicodedata.normalize("NFKC", one) for one in (bracket, _FORMING_RUN.sub("", name)))
    return (_ANGLE_TOKEN if bracket == "<" else _SQUARE_TOKEN).fullmatch(name) is not None
