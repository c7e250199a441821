import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent.settings import Settings
from evals.datasets import load
from evals.peer_filters import measure
from evals.peer_replies import langchain_reply, llamaindex_reply
from retrievers.core.errors import BadRequest

PYTHON = Path(sys.executable)
FIELDS = {"authors": "list", "status": "string", "created": "date", "number": "number"}
FINAL = {"type": "eq", "key": "status", "value": "Final"}


@pytest.mark.parametrize(
    ("wanted", "called", "conditions"),
    [
        (None, "NO_FILTER", []),
        (FINAL, 'eq("status", "Final")', [{"key": "status", "value": "Final", "operator": "=="}]),
        (
            {"type": "and", "filters": [FINAL, {"type": "gte", "key": "created", "value": "2025-03-01"}]},
            'and(eq("status", "Final"), gt("created", "2025-02-28"))',
            [
                {"key": "status", "value": "Final", "operator": "=="},
                {"key": "created", "value": "2025-03-01", "operator": ">="},
            ],
        ),
        (
            {"type": "lte", "key": "number", "value": 7},
            'lt("number", 8)',
            [{"key": "number", "value": 7, "operator": "<="}],
        ),
        (
            {"type": "eq", "key": "authors", "value": "Łukasz"},
            'like("authors", "%Łukasz%")',
            [{"key": "authors", "value": "Łukasz", "operator": "contains"}],
        ),
        (
            {"type": "in", "key": "authors", "value": ["A", "B"]},
            'or(like("authors", "%A%"), like("authors", "%B%"))',
            [{"key": "authors", "value": ["A", "B"], "operator": "any"}],
        ),
        (
            {"type": "nin", "key": "status", "value": ["Final", "Draft"]},
            'nin("status", ["Final", "Draft"])',
            [{"key": "status", "value": ["Final", "Draft"], "operator": "nin"}],
        ),
    ],
)
def test_a_filter_is_written_in_each_peers_own_form(wanted: Any, called: str, conditions: list[dict[str, Any]]):
    fenced = langchain_reply("q", wanted, FIELDS)
    assert fenced.startswith("```json\n")
    assert json.loads(fenced.removeprefix("```json").removesuffix("```")) == {"query": "q", "filter": called}
    assert json.loads(llamaindex_reply("q", wanted, FIELDS)) == {"query": "q", "filters": conditions}


def test_an_or_cannot_be_written_as_a_list_of_conditions():
    either = {"type": "or", "filters": [FINAL, {"type": "eq", "key": "number", "value": 7}]}

    assert '"or(eq(\\"status\\", \\"Final\\"), eq(\\"number\\", 7))"' in langchain_reply("q", either, FIELDS)
    with pytest.raises(ValueError, match="no `or`"):
        llamaindex_reply("q", either, FIELDS)


async def test_a_filter_is_right_if_it_selects_the_labelled_documents(
    routed: Callable[..., Path], adapter: Callable[..., Path], settings: Settings, tmp_path: Path
):
    keepers = {"type": "eq", "key": "team", "value": "keepers"}
    later = {"type": "gte", "key": "day", "value": "2025-06-30"}
    asked = {"split": "test", "lang": "en", "now": "2026-11-20", "class": "filtered", "sources": [], "relevant": {}}
    folder = routed(
        {"id": "q1", "text": "What do the keepers do?", "filter": keepers, **asked},
        {"id": "q2", "text": "What happened since July?", "filter": later, **asked},
        {"id": "q3", "text": "What is repaired?", "filter": None, **asked},
    )
    replies = tmp_path / "replies.jsonl"
    found = {"q1": keepers, "q2": later, "q3": None}
    replies.write_text(
        "".join(
            json.dumps({"id": id, "searches": ["lamp"], "filter": wanted, "sources": ["vector"]}) + "\n"
            for id, wanted in found.items()
        )
    )
    teams = (
        'wanted = json.loads(text)["filters"]\n'
        '    if any(one["operator"] != "==" for one in wanted): raise ValueError("only equality")\n'
        '    return [p.document for p in searcher["passages"]'
        ' if all(p.metadata[one["key"]] == one["value"] for one in wanted)]'
    )
    adapters = {
        "equality": (adapter("equality", search=teams), llamaindex_reply),
        "dying": (adapter("dying", search="os._exit(3)"), llamaindex_reply),
    }

    judged = await measure(load(folder), replies, settings, [PYTHON], lambda line: None, adapters)

    assert (judged["questions"], judged["with_filter"]) == (3, 2)
    assert judged["contenders"]["signalbox"] == {
        "right": 1.0, "right_with_filter": 1.0, "failed_questions": 0, "reasons": {},
    }  # fmt: skip
    peer = judged["contenders"]["equality"]
    # The peer raises on q2: 2 of 3 questions, and 1 of the 2 with a filter, are right.
    assert (peer["right"], peer["right_with_filter"], peer["failed_questions"]) == (0.6667, 0.5, 1)
    assert peer["reasons"] == {"ValueError: only equality": 1}
    assert judged["left_out"] == {"dying": "it ended with code 3: a library that prints"}
    with psycopg.connect(str(settings.database_url)) as connection:
        left = connection.execute("SELECT count(*) FROM pg_database WHERE datname LIKE 'signalbox_bench_%'").fetchone()
    assert left == (0,)


async def test_replies_to_other_questions_are_refused(routed: Callable[..., Path], settings: Settings, tmp_path: Path):
    folder = routed({"id": "q1", "text": "What?", "split": "test", "lang": "en", "filter": None, "relevant": {}})
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"id": "other", "filter": None}) + "\n")
    with pytest.raises(BadRequest, match="no question of this split has a recorded reply"):
        await measure(load(folder), replies, settings, [PYTHON], lambda line: None)
