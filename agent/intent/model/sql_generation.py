"""Let a model write SQL for questions over metadata that no aggregate expresses.

The statement is not trusted: the guard of the SQL source checks it before it runs.
"""

import re
from collections.abc import Mapping
from datetime import date

import prompts
from agent.intent.model.request import describe_fields, format_day
from agent.llm.model import Model, ModelFailed
from agent.llm.reply_json import strip_reasoning
from retrievers.core.types import FieldCatalogue

STAGE = "sql"
_LONGEST = 8000
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Only at the beginning of a line, because remarks around the statement have these words too.
_BEGINS = re.compile(
    r"^\s*(?:WITH\s+(?:RECURSIVE\s+)?\w+\s*(?:\([^)]*\)\s*)?AS\b|SELECT\b)", re.IGNORECASE | re.MULTILINE
)
_REMARK = re.compile(r";\s*\n\s*\n.*\Z", re.DOTALL)


async def write_sql(
    model: Model,
    question: str,
    columns: Mapping[str, str],
    now: date,
    deadline: float,
    *,
    collection: str | None = None,
    catalogue: FieldCatalogue | None = None,
    templates: prompts.TemplateLibrary | None = None,
) -> str:
    """Return one SELECT over the view `documents`, as the model wrote it.

    Args:
        columns: the view's columns, name to type.
        deadline: end of the call, on the clock of `time.monotonic`.
        collection: name of the collection, used only in the key of the call in a recording of replies.
        catalogue: shows the model how values are spelled.
        templates: the tenant's templates; None for the packaged ones.
    Returns:
        The statement without a code fence, remarks around it and a final semicolon; not checked yet.
    Raises:
        ModelFailed: no reply in time, or no SELECT in it.
    """
    shown = "\n".join(f"{name} {kind}" for name, kind in columns.items())
    if catalogue is not None:
        shown += f"\n\nTheir values, with numbers of documents:\n{describe_fields(catalogue)}"
    fence = prompts.fence(shown, question)
    values = {"today": format_day(now), "columns": shown, "question": question, "fence": fence}
    messages = (templates or prompts.packaged_templates()).load(STAGE).messages(values)
    key = {"question": question, "date": f"{now:%Y-%m-%d}", "collection": collection}
    reply = await model.complete(messages, stage=STAGE, deadline=deadline, key=key)
    return extract_statement(reply.text)


def extract_statement(reply: str) -> str:
    """Return the SELECT in a model's reply, without a code fence, remarks around it and a final semicolon.

    Raises:
        ModelFailed: there is no SELECT, or it is longer than 8,000 characters.
    """
    text = strip_reasoning(reply)
    fenced = _FENCE.search(text)
    text = fenced[1] if fenced else text
    begins = _BEGINS.search(text)
    if begins is None:
        raise ModelFailed("its reply contains no SELECT")
    statement = _REMARK.sub("", text[begins.start() :]).strip().removesuffix(";").rstrip()
    if len(statement) > _LONGEST:
        raise ModelFailed(f"its statement has more than {_LONGEST:,} characters")
    return statement
