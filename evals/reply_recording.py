"""Convert recorded model replies by question id into a recording that the service replays."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.intent.model.request import recording_key
from evals.corpus import Note
from evals.datasets import Dataset, LabelledQuestion
from retrievers.core.errors import BadRequest, join_names


def write_recording(dataset: Dataset, replies: Path, recording: Path, note: Note) -> int:
    """Write a `replay:` file for the intent step of a dataset's questions.

    Args:
        replies: JSON lines, each with the `id` of a question and the keys of the reply, see `prompts/intent`.
        recording: the file to write.
        note: receives a message if replies cannot be used, because their questions have no `now`.
    Returns:
        Number of questions with a reply that can be used.
    Raises:
        BadRequest: the file cannot be read, a line is no such object, or no reply can be used.
    """
    given = read_replies(replies)
    answered = [one for one in dataset.questions if one.id in given]
    if not answered:
        raise BadRequest(f"--replies {replies}: the file has no reply to a question of this split", where="--replies")
    dated = [one for one in answered if one.now]
    undated = join_names(one.id for one in answered if not one.now)
    why = "a reply belongs to a date: add it to the question as `now`"
    if not dated:
        raise BadRequest(f"--replies {replies}: no question has a `now`: {undated}; {why}", where="--replies")
    if len(dated) < len(answered):
        note(f"{len(answered) - len(dated)} of {len(answered)} replies are not used: {undated}; {why}")
    lines = [_line(one.collection or dataset.name, one, given[one.id]) for one in dated]
    recording.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def read_replies(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the recorded replies by question id.

    Raises:
        BadRequest: the file cannot be read, or a line is no such object.
    """
    found = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                one = json.loads(line)
                if not isinstance(one, dict) or not isinstance(one.get("id"), str):
                    raise BadRequest(
                        f'--replies {path}: line {number} is not an object with an "id"', where="--replies"
                    )
                found[one["id"]] = {key: value for key, value in one.items() if key != "id"}
    except OSError as error:
        raise BadRequest(f"--replies {path}: the file cannot be read: {error.strerror}", where="--replies") from error
    except ValueError as error:
        raise BadRequest(
            f"--replies {path}: the file is not JSON lines in UTF-8: {error}", where="--replies"
        ) from error
    return found


def _line(collection: str, question: LabelledQuestion, reply: Mapping[str, Any]) -> str:
    assert question.now is not None
    key = recording_key(question.text, question.history, datetime.fromisoformat(question.now), collection)
    return json.dumps({"stage": "intent", "key": key, "reply": reply}, ensure_ascii=False) + "\n"
