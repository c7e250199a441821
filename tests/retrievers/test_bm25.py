import math
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers.ingest.rows import to_tsvector
from retrievers.text.bm25 import (
    idf,
    length_norm,
    pack_positions,
    passage_lexemes,
    passage_vector,
    round_mean_length,
    term_dimension,
    unpack_positions,
)
from retrievers.text.question_terms import question_term_weights

PROFILE = settings(
    derandomize=True, database=None, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def connection(server: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        yield connection


def test_bm25_of_three_documents_is_the_inner_product_of_the_two_sides():
    # Lengths 2, 3 and 1 words: the mean is 2. "cat" is in two of three documents, "dog" in two.
    corpus = ["cat dog", "cat cat cat", "dog"]
    stored = [passage_vector(*passage_lexemes(text, "en"), 2.0) for text in corpus]
    asked = {term_dimension("cat"): idf(2, 3), term_dimension("dog"): idf(2, 3)}

    scores = [sum(weights.get(dimension, 0.0) * weight for dimension, weight in asked.items()) for weights in stored]

    # idf = ln(1 + (3 - 2 + 0.5) / (2 + 0.5)) = ln 1.6; tf part = f * 2.2 / (f + 1.2 * (0.25 + 0.75 * length / 2)).
    rare = math.log(1.6)
    assert scores == pytest.approx(
        [
            rare * (2.2 / (1 + 1.2) + 2.2 / (1 + 1.2)),
            rare * (3 * 2.2 / (3 + 1.2 * 1.375)),
            rare * (2.2 / (1 + 1.2 * 0.625)),
        ]
    )


def test_a_term_in_the_title_counts_twice_and_in_a_question_six_times():
    found, length = passage_lexemes("dog", "en", title="cat", important=["bird"], questions=["Which fish?"])
    weights = passage_vector(found, length, 1.0)
    expected = {"dog": 1, "cat": 2, "bird": 5, "fish": 6}
    assert length == 1 + 2 + 5 + 6
    assert weights == pytest.approx(
        {term_dimension(term): f * 2.2 / (f + length_norm(length, 1.0)) for term, f in expected.items()}
    )


def test_terms_carry_the_label_of_their_field_and_fields_are_far_apart():
    found, _ = passage_lexemes("cat dog cat", "en", title="cat")
    # The text stands at 1 to 3, the title 16 words behind its last term.
    assert found == {"cat": [(1, "D"), (3, "D"), (19, "A")], "dog": [(2, "D")]}


def test_the_length_counts_words_by_their_field_and_no_derived_terms():
    assert passage_lexemes("PEP 703 and pep703", "en")[1] == 3
    assert passage_lexemes("PEP 703 and pep703", "en", title="A long title")[1] == 3 + 2 * 2


def test_idf_is_positive_for_every_count_and_falls_with_it():
    values = [idf(count, 10) for count in range(11)]
    assert all(value > 0 for value in values)
    assert values == sorted(values, reverse=True)
    assert idf(11, 10) > 0


@pytest.mark.parametrize(
    ("actual", "used"),
    [(0.0, 1.0), (1.0, 1.0), (1.04, 1.0), (1.06, 1.1), (1.21, 1.21), (100.0, 1.1**48), (1.1**48, 1.1**48)],
)
def test_mean_lengths_lie_on_a_grid_of_ten_percent(actual: float, used: float):
    assert round_mean_length(actual) == pytest.approx(used)


@pytest.mark.parametrize("mean", [1.0, 7.3, 123.4, 1e6])
def test_a_mean_length_on_the_grid_stays_where_it_is(mean: float):
    assert round_mean_length(round_mean_length(mean)) == pytest.approx(round_mean_length(mean), rel=1e-12)
    assert abs(math.log(round_mean_length(mean) / mean)) <= math.log(1.1) / 2 + 1e-9


def test_what_a_passage_brings_beside_its_text_is_bounded():
    many = [f"term{n}" for n in range(100_000)]
    found, length = passage_lexemes("the text itself", "en", title="x " * 50_000, important=many, questions=many)
    assert length < 100_000
    assert found["text"] == [(2, "D")]
    assert len(found) <= 3000
    assert all(len(places) <= 255 and places[-1][0] <= 16383 for places in found.values())


def stored(connection: psycopg.Connection, text: str) -> dict[str, list[tuple[int, str]]]:
    rows = connection.execute("SELECT lexeme, positions, weights FROM unnest(%s::tsvector)", (text,)).fetchall()
    return {row[0]: list(zip(row[1], row[2], strict=True)) for row in rows}


terms = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
odd_terms = terms | st.sampled_from(
    ["'", "\\", "\\'", "''", ":", "a:b", "1:2", " ", "a b", "|", "&", "!", "<->", "🙂", "中文", "*"]
)
spots = st.dictionaries(st.integers(1, 16383), st.sampled_from("ABCD"), min_size=1, max_size=5).map(
    lambda d: sorted(d.items())
)


@PROFILE
@given(st.dictionaries(odd_terms, spots, min_size=1, max_size=6))
def test_terms_positions_and_labels_come_back_from_postgres_as_they_went(
    connection: psycopg.Connection, found: dict[str, list[tuple[int, str]]]
):
    assert stored(connection, to_tsvector(7, found)) == {f"7:{term}": places for term, places in found.items()}


@PROFILE
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200),
    st.sampled_from(["en", "zh", "de"]),
)
def test_the_terms_of_any_text_come_back_from_postgres(connection: psycopg.Connection, text: str, language: str):
    found, _ = passage_lexemes(text, language, title=text[:20], questions=[text[20:40]])
    assert stored(connection, to_tsvector(1, found)) == {f"1:{term}": places for term, places in found.items()}
    assert unpack_positions(pack_positions(found)) == found


def test_the_largest_passage_fits_a_tsvector(connection: psycopg.Connection):
    many = ["𠀀" * 60 + f"x{n}" for n in range(10_000)] + [f"wörterbuch{n}" * 6 for n in range(10_000)]
    found, _ = passage_lexemes("some text " * 200, "en", title="t " * 9000, important=many, questions=many[::-1])
    assert len(stored(connection, to_tsvector(1, found))) == len(found)


@pytest.mark.parametrize("text", ["京大 北京大学", "北京大学 京大"])
def test_a_term_of_the_question_has_one_weight_wherever_it_stands(text: str):
    # 京大 is a word of the question, and also a pair of characters inside 北京大学, which alone would weigh 0.5.
    assert question_term_weights(text, "zh")["京大"] == 1.0
