import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrievers.text import chunking
from retrievers.text.chunking import PASSAGE_CAPACITY, split_passages

PROFILE = settings(derandomize=True, database=None, deadline=None, max_examples=120)
WIDE = "中文分词是自然语言处理的基础任务之一。"


def size(text: str) -> float:
    """Length in Latin characters, of a text in Latin, Han, kana and hangul."""
    return sum(2.5 if "\u3040" <= c <= "\ud7af" else 1 for c in text)


def headings(text: str, capacity: int = 60) -> list[str]:
    return [span.heading for span in split_passages(text, capacity)]


def check(text: str, capacity: int) -> None:
    spans = split_passages(text, capacity)
    end = 0
    for span in spans:
        assert not text[end : span.start].strip(), "only white space lies between passages"
        assert end <= span.start < span.end
        passage = text[span.start : span.end]
        assert passage == passage.strip()
        assert size(passage) <= capacity * 1.15 or len(passage) == 1
        end = span.end
    assert not text[end:].strip()


@PROFILE
@given(
    st.lists(
        st.text(max_size=30) | st.sampled_from(["# A\n", "B\n===\n", "```\n", "\n\n", WIDE, "word " * 20]), max_size=12
    ),
    st.integers(1, 120),
)
@example(["word " * 400, WIDE * 40, "x" * 900], 100)
@example(["👩‍👩‍👧" * 100, "e\u0301" * 200, "🇩🇪" * 50], 3)
def test_every_character_is_in_exactly_one_passage_of_bounded_length(parts: list[str], capacity: int):
    check("".join(parts), capacity)


def test_a_text_that_fits_is_one_passage_without_its_margins():
    [span] = split_passages("  One sentence.\n")
    assert (span.start, span.end, span.heading) == (2, 15, "")


def test_white_space_alone_has_no_passage():
    assert split_passages(" \n\t ") == []


def test_a_part_in_wide_script_is_cut_shorter_than_the_latin_part_of_the_same_document():
    text = "plain English words here. " * 400 + "\n\n" + WIDE * 200
    check(text, PASSAGE_CAPACITY)
    wide = [span for span in split_passages(text) if "中" in text[span.start : span.end]]
    latin = [span for span in split_passages(text) if "plain" in text[span.start : span.end]]
    assert max(span.end - span.start for span in wide[1:]) <= PASSAGE_CAPACITY / 2.5 * 1.15
    assert max(span.end - span.start for span in latin) > PASSAGE_CAPACITY / 2


# Headings.


def test_passages_of_markdown_carry_the_path_of_their_headings():
    text = (
        "z " * 20
        + "\n\n# One\n"
        + "a " * 20
        + "\n## Two ##\n"
        + "b " * 20
        + "\n### Three\n"
        + "c " * 20
        + "\n# Four\n"
        + "d " * 20
    )
    spans = {text[span.start : span.end].split()[-1]: span.heading for span in split_passages(text, 60)}
    assert spans == {
        "z": "", "a": "One", "b": "One > Two", "c": "One > Two > Three", "d": "Four",
    }  # fmt: skip


def test_passages_of_restructured_text_carry_the_path_of_their_headings():
    text = "Title\n=====\n" + "a " * 20 + "\nPart\n----\n" + "b " * 20 + "\nOther\n=====\n" + "c " * 20
    spans = {text[span.start : span.end].split()[-1]: span.heading for span in split_passages(text, 60)}
    assert spans == {"a": "Title", "b": "Title > Part", "c": "Other"}


def test_small_sections_share_a_passage_under_what_their_paths_have_in_common():
    text = "# A\n## B\nb b\n## C\nc c\n# D\n" + "d " * 40
    first = split_passages(text, 40)[0]
    assert text[first.start : first.end] == "# A\n## B\nb b\n## C\nc c"
    assert first.heading == "A"


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# C#", "C#"), ("# Lists #", "Lists"), ("## F# and C# ##", "F# and C#"), ("  ### In  ", "In"),
        ("# 中文 标题", "中文 标题"), ("#tag", ""), ("# ", ""), ("# #", ""), ("####### Seven", ""), ("    # code", ""),
    ],
)  # fmt: skip
def test_what_is_a_markdown_heading_and_what_is_none(line: str, title: str):
    assert headings(f"{line}\n" + "word " * 60)[0] == title


@pytest.mark.parametrize(
    ("opened", "inside", "closed"),
    [
        ("```", "# no", "```"), ("```python", "# no", "```"), ("~~~", "# no", "~~~"),
        ("````", "```\n# no\n```", "````"), ("```", "~~~\n# no", "```"), ("```", "```python\n# no", "```"),
        ("  ```", "No\n===", "  ```"), ("```", "# no", "`````"),
    ],
)  # fmt: skip
def test_lines_in_a_code_fence_are_no_headings_and_those_behind_it_are(opened: str, inside: str, closed: str):
    text = f"{opened}\n{inside}\n{closed}\n" + "word " * 40 + "\n# Yes\n" + "word " * 40
    found = headings(text)
    assert found[0] == ""
    assert found[-1] == "Yes"
    assert set(found) == {"", "Yes"}


def test_code_between_backticks_in_one_line_opens_no_fence():
    assert headings("```x = 1```\n# Yes\n" + "word " * 60)[-1] == "Yes"


def test_a_list_or_table_line_is_no_underlined_title():
    assert set(headings("- item\n---\n| a |\n---\n" + "word " * 60)) == {""}


# Boundaries.


def test_long_text_is_cut_at_the_ends_of_sentences():
    text = "This is a sentence of some length. " * 40
    assert all(text[span.start : span.end].endswith(".") for span in split_passages(text, 200))


def test_long_chinese_text_is_cut_at_the_ends_of_sentences():
    text = WIDE * 60
    spans = split_passages(text, 500)
    assert len(spans) > 5
    assert all(text[span.start : span.end].endswith("。") for span in spans)


def test_a_very_long_section_is_cut_at_paragraphs_into_passages_of_like_size():
    text = ("A paragraph with one sentence or two. It ends here.\n\n" * 3000).strip()
    spans = split_passages(text)
    assert all(text[span.start : span.end].endswith("here.") for span in spans)
    assert min(span.end - span.start for span in spans) > PASSAGE_CAPACITY / 3


@pytest.mark.parametrize(
    "text",
    [
        "a" * 2_000_000, " " * 1_999_999 + "a", "\n" * 2_000_000, "word " * 400_000, "# a\n" * 500_000,
        "a\n===\n" * 300_000, "# a" + " " * 1_999_000 + "b", "# a" + "#" * 1_999_000 + "b", "# " * 1_000_000,
        "=" * 1_999_000 + " x", "```\n" * 500_000, "中" * 400_000, "か" * 400_000, "한" * 400_000, "中国。" * 100_000,
        "\u0301" * 2_000_000, "👩‍" * 500_000,
    ],
    ids=lambda text: repr(text[:4]),
)  # fmt: skip
def test_a_text_of_two_megabytes_is_split_in_reasonable_time(text: str):
    started = time.process_time()
    spans = split_passages(text)
    assert time.process_time() - started < 15
    assert sum(span.end - span.start for span in spans) >= len("".join(text.split()))


@PROFILE
@given(st.text(st.sampled_from("\r\n\x0c\x85\u2028ab "), max_size=40))
def test_lines_are_the_same_when_they_are_split_in_parts(text: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_LINES_CHARACTERS", 3)
        assert list(chunking._lines(text)) == text.splitlines(keepends=True)
