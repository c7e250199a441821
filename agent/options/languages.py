"""Languages in which answers can be requested, by ISO 639-1 code."""

from collections.abc import Mapping

from retrievers.core.errors import join_names

NAMES: Mapping[str, str] = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nl": "Dutch", "no": "Norwegian", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian",
    "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def check_language(code: str | None) -> str | None:
    """Return the code unchanged.

    Raises:
        ValueError: the code is not in `NAMES`; the message lists the valid codes.
    """
    if code is not None and code not in NAMES:
        raise ValueError(f"there is no such language; there are: {join_names(NAMES, len(NAMES))}")
    return code


def uses_chinese(language: str | None, is_chinese: bool) -> bool:
    """Return whether to use the Chinese version of a fixed sentence. Fixed sentences exist in English and Chinese only.

    Args:
        language: requested language of the answer; None means the question's language.
        is_chinese: whether the question is Chinese.
    """
    return is_chinese if language is None else language == "zh"
