"""The offline check of an answer: what passages bear out, in English and Chinese, and what they do not."""

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from agent.answering import faithfulness_check, text_features
from agent.answering.faithfulness_check import (
    check_sentences,
    extract_features,
    faithfulness,
    is_checkable,
    measure_support,
    says_answer_missing,
    split_answer,
)
from agent.answering.text_features import PassageFeatures, extract_passage_features
from agent.types import AnswerSentence
from retrievers.core.errors import Unavailable
from retrievers.embed import Embedder
from retrievers.testing import HashEmbedder
from retrievers.text.chunking import split_passages

WIND = """[1] Wind turbines (https://docs.example/wind)
author: Anna Berg
created: 2014-09-29

The rotor stops when the wind is faster than 25 m/s. Its bearing is oiled every
three months by the maintenance team. The tower must not be climbed in a storm.
In 2015 the plant produced 1,500 MWh for about 400 households."""
STORM = """[2] Storms

Storm Xaver reached Denmark in December 2013. It cost 1.5 million euros."""
CHINESE = """[3] 风力发电机

风速超过25米每秒时，转子会自动停止。轴承由维护团队每三个月加油一次。暴风雨中不得攀登塔架。2015年发电量为1500兆瓦时。"""
DATES = """[4] Xaver

Xaver came on 2013-12-05, and in October 2014 it was gone. 泽维尔风暴于2013年12月5日到达丹麦。"""
PASSAGES = (WIND, STORM, CHINESE, DATES)


async def judged(answer: str, embedder: Embedder | None = None) -> list[bool | None]:
    found = await check_sentences(split_answer(answer, len(PASSAGES)), PASSAGES, embedder)
    return [one.supported for one in found]


@pytest.mark.parametrize(
    "sentence",
    [
        "The rotor stops when the wind is faster than 25 m/s [1].",
        "When wind speed is faster than 25 m/s, the rotor is stopped [1].",
        "The maintenance team oils the bearing every 3 months [1].",
        "In 2015 the plant made 1500 MWh for about 400 households [1].",
        "Climbing the tower in a storm is not allowed: it must not be climbed [1].",
        "Anna Berg wrote this on September 29, 2014 [1].",
        "The storm Xaver reached Denmark in 2013 and cost 1,500,000 euros [2].",
        "The rotor stops in wind faster than 25 m/s [1], and storm Xaver cost 1.5 million euros [2].",
        "**The rotor** stops when wind is faster than `25` m/s [1].",
        "Xaver came on 5 December 2013 and was gone by October 2014 [4].",
        "Xaver came on December 5th, 2013 [4].",
        "泽维尔风暴于2013年12月5日到达丹麦[4]。",
        "风速超过25米每秒，转子自动停止【3】。",
        "维护团队每3个月给轴承加油一次[3]。",
        "暴风雨中不得攀登塔架［3］。",
    ],
)
async def test_a_sentence_that_its_passages_state_is_supported(sentence: str):
    assert await judged(sentence) == [True]


async def test_a_sentence_copied_with_what_nobody_sees_is_compared_as_it_is_seen():
    assert await judged("The ro\u00adtor st\u200bops when the wi\u2060nd is faster than 25 m/s [1].") == [True]
    assert await judged("The ro\u00adtor st\u200bops when the wi\u2060nd is faster than 2\u200b6 m/s [1].") == [False]


@pytest.mark.parametrize(
    "sentence",
    [
        "The rotor stops when the wind is faster than 35 m/s [1].",
        "The maintenance team oils the bearing every four months [1].",
        "In 2016 the plant produced 1,500 MWh for about 400 households [1].",
        "The tower must be climbed in a storm [1].",
        "The rotor does not stop when the wind is faster than 25 m/s [1].",
        # Both the year and the month are there, in two dates.
        "Xaver came in October 2013, and it was gone by December 2014 [4].",
        "The storm Xaver came in 2013 on 14 December 2014 [4].",
        "泽维尔风暴于2014年12月到达丹麦[4]。",
        "Clara Voss wrote this on September 29, 2014 [1].",
        "Anna Berg wrote this on October 29, 2014 [1].",
        "The storm Xaver reached Norway in December 2013 [2].",
        "The storm cost 1.5 billion euros [2].",
        "The storm Xaver reached Denmark in December 2013 [1].",
        "Penguins swim in the cold southern sea [1].",
        "风速超过35米每秒时，转子会自动停止【3】。",
        "风速超过25米每秒时，转子不会自动停止【3】。",
        "暴风雨中可以攀登塔架【3】。",
        "企鹅在南方寒冷的海里游泳【3】。",
    ],
)
async def test_a_sentence_with_something_that_they_do_not_state_is_not(sentence: str):
    assert await judged(sentence) == [False]


@pytest.mark.parametrize(
    ("sentence", "citations"),
    [
        ("The rotor stops when the wind is faster than 25 m/s.", (1,)),
        ("Storm Xaver cost 1.5 million euros.", (2,)),
        ("轴承由维护团队每三个月加油一次。", (3,)),
        # A number that no passage has is no citation.
        ("The rotor stops when the wind is faster than 25 m/s [7].", (1,)),
    ],
)
async def test_a_claim_without_a_citation_gets_that_of_the_passage_that_bears_it_out(
    sentence: str, citations: tuple[int, ...]
):
    (found,) = await check_sentences(split_answer(sentence, len(PASSAGES)), PASSAGES)

    assert (found.citations, found.supported) == (citations, True)
    assert found.score is not None
    assert found.score >= 0.6


@pytest.mark.parametrize(
    "sentence",
    [
        "The rotor stops when the wind is faster than 35 m/s.",
        "Penguins swim in the cold southern sea.",
        # What two passages say, but neither of them.
        "The rotor of Anna Berg reached Denmark in a storm in December 2013.",
        "企鹅在南方寒冷的海里游泳。",
    ],
)
async def test_a_claim_without_a_citation_that_no_passage_bears_out_is_marked(sentence: str):
    (found,) = await check_sentences(split_answer(sentence, len(PASSAGES)), PASSAGES)

    assert (found.citations, found.supported) == ((), False)


async def test_a_claim_without_a_citation_in_other_words_is_marked_unless_a_passage_is_alike():
    bare = REWORDED.replace(" [1]", "")
    for embedder, citations, supported in ((None, (), False), (Alike(0.5), (), False), (Alike(0.9), (1,), True)):
        (found,) = await check_sentences(split_answer(bare, len(PASSAGES)), PASSAGES, embedder)
        assert (found.citations, found.supported) == (citations, supported)


async def test_a_claim_without_a_citation_in_another_language_than_all_passages_has_its_figures_compared():
    found = await check_sentences(split_answer("轴承每三个月加油一次。风速超过35米每秒时停止。", 1), (WIND,))

    assert [(one.citations, one.supported) for one in found] == [((), None), ((), False)]


async def test_without_passages_a_claim_is_marked():
    (found,) = await check_sentences(split_answer("The rotor stops in the wind.", 0), ())

    assert (found.supported, found.score) == (False, 0.0)


async def test_a_number_that_no_passage_has_is_no_citation():
    found = split_answer("The rotor stops [4]. Or so [0][2].", 3)
    assert [one.citations for one in found] == [(), (2,)]


PARAPHRASES = [
    "Gusts quicker than 25 m/s bring the rotor to a halt [1].",
    "Whenever wind exceeds 25 m/s, the blades cease to turn [1].",
    "The maintenance people lubricate the bearing four times a year [1].",
    "Nobody is allowed up the tower while there is a storm [1].",
    "The damage that Xaver did was put at 1.5 million euros [2].",
    "The passage states that in December 2013 Denmark was hit by Xaver [2].",
    "According to the documents, Xaver did damage of 1.5 million euros [2].",
    "文中提到，维护团队一个季度给轴承上一次油[3]。",
    "维护团队一个季度给轴承上一次油[3]。",
]


@pytest.mark.parametrize("sentence", PARAPHRASES)
async def test_a_free_paraphrase_is_not_marked(sentence: str):
    assert (await judged(sentence))[0] is not False


@pytest.mark.parametrize("sentence", [PARAPHRASES[0].replace("25", "35"), PARAPHRASES[4].replace("Xaver", "Kyrill")])
async def test_a_paraphrase_with_another_number_or_name_is_marked(sentence: str):
    assert await judged(sentence) == [False]


@pytest.mark.parametrize(
    ("sentence", "passage", "supported"),
    [
        # A range of years is two years, the second maybe in two digits, and no month.
        (
            "The band played from 1991 to 2000 and 2007-2011 [1].",
            "The band played ( 1991 -- 2000 ; 2007 -- 11 ) .",
            True,
        ),
        ("The band played from 1991 to 2010 [1].", "The band played ( 1991 -- 2000 ; 2007 -- 11 ) .", False),
        # A word of number that counts things nobody else counts is the writer's own sum.
        ("The two brothers Jan and Piet own the mill [1].", "Jan and his brother Piet own the mill.", True),
        ("The two brothers own the mill [1].", "The three brothers own the mill.", False),
        ("Jan's brother owns Piet’s mill [1].", "The brother of Jan owns the mill of Piet.", True),
        ("The band played from 2007-11 [1].", "The band played from 2007 to 2011.", True),
        ("Xaver came on 2013-12-05 [1].", "Xaver came on December 5, 2013.", True),
        ("Alloa is 8th of the league [1].", "Alloa is eighth of the league.", True),
        ("The Six Flags park has two tigers [1].", "The park Six Flags has 2 tigers.", True),
        # Whom a passage speaks of may be named in any sentence about it, in any form of the name.
        ("A jury of Americans met in Lyon [1].", "A jury met in Lyon. It rained. Men from America sat on it.", True),
        ("A jury of Spaniards met in Lyon [1].", "A jury met in Lyon. It rained. Men from America sat on it.", False),
        # A line in bold is a heading.
        ("**Jury And Verdict** [1]", "It rained in Rome.", None),
        # The passage denies the race's end, the sentence speaks of the race.
        ("The race was held in the rain [1].", "The race was held in the rain. Jan did not finish the race.", True),
        ("Jan did finish the race [1].", "The race was held in the rain. Jan did not finish the race.", False),
        # The number of a version is one name, also at the beginning, and a longer number is of the same version.
        ("The ship runs v2.5 of the software [1].", "The ship runs v2.6 of the software.", False),
        ("Python3.11 runs the pumps of the ship [1].", "Python3.12 runs the pumps of the ship.", False),
        ("The ship runs v2.6 of the software [1].", "The ship runs v2.6.1 of the software.", True),
        ("The ship runs v2.6 of the software [1].", "The ship runs v2.5 and v3.6 of the software.", False),
        ("The ship has Python 3.1 [1].", "The ship has Python 3.10.", False),
        ("We've closed the port and the town [1].", "The storm has closed the port and the town.", None),  # no name
        # A sign is part of a number, the mark of a range is not.
        ("The margin was -5 percent [1].", "The margin was 5 percent.", False),
        ("The margin was 5 percent [1].", "The margin was −5 percent.", False),
        ("The margin was minus 5 percent [1].", "The margin was -5 percent.", True),
        ("The margin was -$5 million [1].", "The margin was $5 million.", False),
        ("The margin was 10 to 15 percent [1].", "The margin was 10-15 percent.", True),
        ("The margin was 10 to 15 percent [1].", "The margin was 10 -15 percent.", True),
        ("利润率为零下5度[1]。", "利润率为5度。", False),
        # Number words are read as one number.
        ("Three hundred ships left the port [1].", "Three ships left the port.", False),
        ("Three ships left the port [1].", "Three hundred ships left the port.", False),
        ("Three hundred ships left the port [1].", "300 ships left the port.", True),
        ("Twenty one ships left the port [1].", "21 ships left the port.", True),
        ("A hundred and ten ships left the port [1].", "110 ships left the port.", True),
        ("From one hundred and two hundred ships 100 left [1].", "From 100 and 200 ships 100 left.", True),
        # Zeros at the end change nothing, except in a version.
        ("The margin was 5.0 percent [1].", "The margin was 5 percent.", True),
        ("The margin was 5 percent [1].", "The margin was 5.00 percent.", True),
        ("The margin was 5.50 percent [1].", "The margin was 5.5 percent.", True),
        ("The ticket costs $2.50 [1].", "The ticket costs $2.5.", True),
        ("The 2nd hall is open [1].", "The ſecond hall is open.", True),
    ],
)
async def test_figures_names_and_negations_are_compared_as_they_are_meant(
    sentence: str, passage: str, supported: bool | None
):
    (found,) = await check_sentences(split_answer(sentence, 1), (f"[1]\n\n{passage}",))

    assert found.supported is supported


async def test_sentences_lie_where_they_say_and_scores_follow_what_is_borne_out():
    answer = "## Wind\n- The rotor stops when the wind is faster than 25 m/s [1].\n- It cost 9 million euros [2]."
    found = await check_sentences(split_answer(answer, 3), PASSAGES)
    assert [answer[one.start : one.end] for one in found] == [one.text for one in found]
    heading, good, bad = found
    assert (heading.supported, heading.score) == (None, None)
    assert good.score is not None
    assert bad.score is not None
    assert 0 <= bad.score < 0.6 <= good.score <= 1
    assert faithfulness(found) == 0.5


@pytest.mark.parametrize(
    "sentence",
    [
        "What is a rotor?", "Here is what the documents say:", "I hope this helps you with the rotor.", "Yes.",
        "The documents do not mention the price of a turbine.", "您好，很高兴为您服务。", "文档中没有提到价格。",
        "转子是什么？",
    ],
)  # fmt: skip
async def test_a_sentence_that_states_nothing_is_not_judged(sentence: str):
    assert not is_checkable(sentence)
    assert await judged(sentence) == [None]


def test_where_nothing_is_judged_there_is_no_figure():
    assert faithfulness([]) is None
    assert faithfulness([AnswerSentence(text="Hello.", start=0, end=6)]) is None


@pytest.mark.parametrize(
    ("text", "declines"),
    [
        ("I cannot answer this from the documents.", True),
        ("The passages don't contain the price.", True),
        ("There is no information about prices.", True),
        ("The price is not mentioned in the documents.", True),
        ("It can't be determined.", True),
        ("文档中没有找到相关信息。", True),
        ("根据现有资料无法回答这个问题。", True),
        ("无法从文档中得知。", True),
        ("The tower must not be climbed in a storm [1].", False),
        ("Documents are not deleted before they expire [1].", False),
        ("暴风雨中不得攀登塔架[3]。", False),
    ],
)
def test_an_answer_that_says_it_is_none_is_known_as_one(text: str, declines: bool):
    assert says_answer_missing(text) is declines


async def test_wordings_of_two_languages_are_not_compared_but_their_figures_are():
    sentences = (
        "轴承每三个月加油一次[1]。风速超过25米每秒时停止[1]。风速超过35米每秒时停止[1]。The bearing is oiled often [3]."
    )
    assert await judged(sentences) == [None, None, False, None]


class Alike(HashEmbedder):
    """Finds any two texts equally alike."""

    def __init__(self, cosine: float) -> None:
        super().__init__(2)
        self.cosine = cosine

    async def embed(self, texts):
        self.embedded += texts
        return np.array([[1.0, 0.0], [self.cosine, (1 - self.cosine**2) ** 0.5]])


class Both(HashEmbedder):
    """Finds every second pair of texts alike."""

    async def embed(self, texts):
        self.embedded += texts
        return np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]] * (len(texts) // 4)).reshape(-1, 2)


REWORDED = "Blades halt once gusts get faster than 25 m/s [1]."


@pytest.mark.parametrize(("cosine", "supported"), [(0.9, True), (0.5, None)])
async def test_where_words_do_not_decide_likeness_does(cosine: float, supported: bool | None):
    embedder = Alike(cosine)
    assert await judged(REWORDED, embedder) == [supported]
    assert embedder.embedded[0] == "Blades halt once gusts get faster than 25 m/s ."


async def test_the_embedder_is_asked_once_for_all_sentences_and_each_gets_its_own_likeness():
    embedder = Both()
    assert await judged(f"{REWORDED} The rotor stops [1]. {REWORDED}", embedder) == [True, True, None]
    assert len(embedder.embedded) == 4


async def test_likeness_also_saves_a_paraphrase_that_shares_a_word_or_two():
    few = "People who are in charge of maintenance lubricate that part four times a year [1]."
    assert await judged(few) == [False]
    assert await judged(few, Alike(0.5)) == [False]
    assert await judged(few, Alike(0.9)) == [True]


async def test_likeness_does_not_outweigh_a_wrong_number_nor_is_it_asked_for_a_plain_case():
    embedder = Alike(1.0)
    plain = "The rotor stops when the wind is faster than 25 m/s [1]. Penguins swim [1]."
    assert await judged(REWORDED.replace("25", "35"), embedder) == [False]
    assert await judged(plain, embedder) == [True, False]
    assert embedder.embedded == []


async def test_an_embedder_that_fails_or_does_not_know_the_language_is_done_without():
    class Down(HashEmbedder):
        async def embed(self, texts):
            raise Unavailable("the embedder", "down")

    class Slow(HashEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(30)

    sentences = split_answer(f"{REWORDED} {REWORDED}", len(PASSAGES))
    found = await check_sentences(sentences, PASSAGES, Slow(), patience_s=0.1)
    assert [one.supported for one in found] == [None, None]
    german = Alike(1.0)
    german.languages = frozenset({"de"})
    assert await judged(REWORDED, Down()) == [None]
    assert await judged(REWORDED, german) == [None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[1]" * 50,
        "1" * 3000,
        "不" * 500,
        "a\ud800b [1].",
        "́" * 300 + " [1]",
        "(" * 500,
        "9" * 6000 + " million [1]",
    ],
)
async def test_no_text_is_too_odd_to_be_checked(text: str):
    assert all(value in (None, False) for value in await judged(text))


@pytest.mark.parametrize("piece", ["ã", "ж", "[", "é[", "A'", "a_", "(", "]("])
async def test_what_is_longer_than_a_sentence_is_not_judged_and_the_reading_is_linear(piece: str):
    long = piece * (200_000 // len(piece))
    assert await judged(f"{long} [1].") == [None]
    # A square of the length would keep this busy for minutes.
    extract_features(long)


async def test_the_deadline_also_holds_within_a_sentence_that_is_compared_with_every_passage(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = [0]

    def reading(passage: str, deadline: float) -> PassageFeatures:
        clock[0] += 1
        return extract_passage_features(passage, deadline)

    monkeypatch.setattr(faithfulness_check, "extract_passage_features", reading)
    for module in (faithfulness_check, text_features):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    found = await check_sentences(split_answer("The rotor stops in the wind.", 50), [WIND] * 50, deadline=3)

    assert ([one.supported for one in found], clock) == ([None], [3])


async def test_the_embedder_is_asked_for_the_first_sentences_of_a_long_answer():
    embedder = Both()
    found = await judged(f"{REWORDED} " * 150, embedder)
    assert found == [True, None] * 50 + [None] * 50
    assert len(embedder.embedded) == 200


@pytest.mark.shared_data
@pytest.mark.parametrize("corpus", ["peps", "scifact", "cmrc2018"])
async def test_true_sentences_of_real_documents_are_told_from_changed_ones(
    corpus: str, shared_data: Callable[[str], Path]
):
    """Sentences word for word, with another number, and of another document; constants were set on other draws."""
    draw = random.Random(2)
    lines = (shared_data(corpus) / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = []
    for record in map(json.loads, draw.sample(lines, 60)):
        span = draw.choice(split_passages(record["text"]))
        passage = re.sub(r"(?<=\S)\n(?=[^\s\-*•#>|\d])", " ", record["text"][span.start : span.end])
        for one in split_answer(passage, 0)[1:-1]:
            if one.text[-1] in ".。" and len(one.text) > 25 and is_checkable(one.text):
                pairs.append((re.sub(r"\[\d+\]", "", one.text), f"[1] {record['title']}\n\n{passage}"))
    pairs = draw.sample(pairs, min(80, len(pairs)))

    async def share(cases: list[tuple[str, str]]) -> float:
        found = [
            await check_sentences((AnswerSentence(text=s, start=0, end=1, citations=(1,)),), (p,)) for s, p in cases
        ]
        return sum(one[0].supported is True for one in found) / len(found)

    elsewhere = [
        (sentence, pairs[n - 1][1]) for n, (sentence, passage) in enumerate(pairs) if passage != pairs[n - 1][1]
    ]
    number = re.compile(r"(?<![A-Za-z0-9_.])\d+(?![A-Za-z0-9_.])")
    changed = [(number.sub("8675", sentence, count=1), passage) for sentence, passage in pairs]
    wrong = [one for one in changed if one not in pairs]
    assert wrong
    assert await share(pairs) >= 0.95
    assert await share(wrong) <= 0.05
    assert await share(elsewhere) <= 0.05


@pytest.mark.parametrize(("passages", "words"), [(400, 3), (1, 3000)], ids=["many passages", "many names"])
def test_the_deadline_also_holds_within_one_comparison(passages: int, words: int, monkeypatch: pytest.MonkeyPatch):
    said = extract_features(" ".join(f"Rotor Name{number}" for number in range(words)))
    held = [extract_passage_features("The rotor stops. Mary Jones said so. It turns again.")] * passages
    asked = [0]

    def now() -> int:
        asked[0] += 1
        return asked[0]

    monkeypatch.setattr(text_features, "time", SimpleNamespace(monotonic=now))
    with pytest.raises(TimeoutError):
        measure_support(said, held, deadline=100)
    assert asked == [100]
