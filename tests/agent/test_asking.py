"""A turn is divided where a new question begins, and nowhere else."""

import pytest

from agent.intent.topic.question_parts import split_questions


@pytest.mark.parametrize(
    "question",
    [
        "Which firm sells maps and is accused of copying them?",
        "Which firms sell maps and are widely used?",
        "Who is not only backing a startup but is also planning to launch a venture?",
        "Who is the man whose trial went on and who has left the firm?",
        "Which bus goes to Lisbon and does not stop in Porto?",
        "Which country is home to the firm and also where it grew most?",
        "Who runs the exchange under scrutiny? This person is also named in two reports.",
    ],
)
def test_a_second_verb_or_clause_is_no_second_question(question: str):
    assert split_questions(question) == [question]


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Who leads Atlas and who leads Beta?", ["Who leads Atlas", "who leads Beta?"]),
        ("How do I install it and where do the logs go?", ["How do I install it", "where do the logs go?"]),
        ("What is the dose and are refunds allowed for all?", ["What is the dose", "are refunds allowed for all?"]),
        ("What does the contract say and can members cancel?", ["What does the contract say", "can members cancel?"]),
        ("What is the fee and does breakfast cost extra?", ["What is the fee", "does breakfast cost extra?"]),
        ("Who wrote notes that burnt and who was the boss?", ["Who wrote notes that burnt", "who was the boss?"]),
        ("Is Ann the owner, and is Bo the reviewer?", ["Is Ann the owner", "is Bo the reviewer?"]),
        ("Which albums are by Ann and also who produced Blue?", ["Which albums are by Ann", "who produced Blue?"]),
    ],
)  # fmt: skip
def test_two_questions_are_two_parts(question: str, parts: list[str]):
    assert split_questions(question) == parts
