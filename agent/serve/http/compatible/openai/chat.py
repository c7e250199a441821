"""OpenAI's chat completions and models endpoints, with and without streaming."""

import json
import logging
import time
import uuid
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.sse import EventSourceResponse, format_sse_event
from pydantic import BaseModel

from agent.chat.advisors.advisor import ChatAnswer
from agent.serve.authentication import Caller
from agent.serve.deadline import remaining_timeout_s
from agent.serve.http.compatible.openai.errors import openai_error, openai_error_fields
from agent.serve.http.compatible.openai.requests import (
    ANSWER_MODEL,
    MODELS,
    PROMPT_MODEL,
    ChatBody,
    ChatOptions,
    check_model,
    question_fields,
)
from agent.serve.http.compatible.openai.schemas import (
    Completion,
    CompletionChoice,
    ErrorBody,
    Extra,
    ModelEntry,
    Models,
    Said,
    Used,
)
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep
from agent.serve.http.endpoints.native import json_response
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import Problem, field_problem, logged_problem, problem_of
from agent.service.service import Service
from agent.types import AugmentRequest, Citation, FinishReason, Result, Usage
from retrievers.core.errors import BadRequest

_STARTED = int(time.time())
_EXAMPLE = {"model": ANSWER_MODEL, "messages": [{"role": "user", "content": "Why did the payment service fail?"}]}
# Proxies must not buffer the stream.
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

_log = logging.getLogger(__name__)

Json = dict[str, Any]
ModelId = Annotated[str, Path(description="id of the model", min_length=1, max_length=128, examples=[ANSWER_MODEL])]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    routes.post("/chat/completions", responses=_openapi_responses(Completion, _STREAM))(create_chat_completion)
    routes.get("/models", responses=_openapi_responses(Models))(list_models)
    routes.get("/models/{id}", responses=_openapi_responses(ModelEntry))(get_model)
    return routes


def _openapi_responses(shape: type[BaseModel], more: Json | None = None) -> dict[int | str, Json]:
    said: Json = {"model": ErrorBody, "description": "an error in OpenAI's form"}
    return {200: {"model": shape, **(more or {})}, "4XX": said, "5XX": said}


_STREAM = {
    "description": "the answer; with `stream`, its chunks as server-sent events",
    # The schema of one event: `data` is a chunk as JSON, or "[DONE]".
    "content": {
        "text/event-stream": {
            "schema": {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
        }
    },
}
ERROR_FORMATTERS = {"/v1/chat/": openai_error, "/v1/models": openai_error}


async def list_models(caller: CallerDep) -> Response:
    """List the models of this service."""
    return json_response(Models(data=[_model(name) for name in MODELS]))


async def get_model(caller: CallerDep, id: ModelId) -> Response:
    """Return one model of this service."""
    return json_response(_model(check_model(id)))


async def create_chat_completion(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[ChatBody, Depends(JsonBody(ChatBody, example=_EXAMPLE))],
) -> Response:
    """Answer a conversation's last question with citations, in OpenAI's form.

    The model `signalbox` retrieves passages and calls the configured language model. The model `signalbox-prompt`
    returns the prompt itself and calls no language model.
    """
    check_model(body.model)
    if body.model == ANSWER_MODEL and service.answerer.model is None:
        raise Problem(
            503,
            "no-model",
            f"no model is configured: set LLM on the server, or use the model {PROMPT_MODEL}, which returns only the "
            "prompt",
            # Retrying does not help; OpenAI's clients read this header.
            headers={"Retry-After": "60", "X-Should-Retry": "false"},
        )
    by_model, options = body.model == ANSWER_MODEL, body.options
    left = remaining_timeout_s(options.get("timeout_s"), service.settings, waited_s, by_model=by_model)
    if left is not None:
        options["timeout_s"] = left
    ask = _stream_answer if by_model else _stream_prompt
    pieces = ask(service, caller.on_behalf_of(options.pop("principals", None)), body, options)
    try:
        if body.stream:
            # Before the first piece is sent, an error still gets its own status.
            first = await anext(pieces)
            return EventSourceResponse(_events(first, pieces, body), headers=_STREAM_HEADERS)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, _StreamEnd):
                    return _completion_response(piece, body)
    except BadRequest as error:
        raise _problem_of_openai_field(error) from error
    raise AssertionError("every stream ends with an _End")


@dataclass(frozen=True, slots=True)
class _StreamEnd:
    """The last item of an answer's stream: the whole text and everything else that the response contains.

    `unfinished` means the model did not finish the answer.
    """

    text: str
    extra: Extra
    finish_reason: FinishReason = "stop"
    tool_calls: tuple[Json, ...] = ()
    usage: Usage = field(default_factory=Usage)
    unfinished: bool = False

    @property
    def used(self) -> Used:
        """The token counts in OpenAI's form."""
        prompt, completion = self.usage.prompt_tokens, self.usage.completion_tokens
        return Used(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


async def _stream_answer(
    service: Service, caller: Caller, body: ChatBody, options: Json
) -> AsyncGenerator[str | _StreamEnd]:
    asked = {**options, **question_fields(body), **body.caller_fields, "model_options": body.llm_options}
    async with aclosing(service.chat_stream(tenant=caller.viewer, **asked)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ChatAnswer):
                extra = _extra(piece.trace_id, piece.citations, piece.status, piece.degraded, piece.details)
                unfinished = "answer_cut" in piece.degraded
                yield _StreamEnd(piece.text, extra, piece.finish_reason, piece.tool_calls, piece.usage, unfinished)
            else:
                yield piece


async def _stream_prompt(
    service: Service, caller: Caller, body: ChatBody, options: Json
) -> AsyncGenerator[str | _StreamEnd]:
    if foreign := sorted(set(options) - set(AugmentRequest.model_fields)):
        raise field_problem(f"signalbox.{foreign[0]}", f"{PROMPT_MODEL} calls no model")
    asked = {**options, **body.caller_fields, "messages": question_fields(body)["messages"]}
    prompt = await service.augment(tenant=caller.viewer, **asked)
    text = prompt.refusal or prompt.prompt
    yield text
    extra = _extra(prompt.trace_id or None, prompt.citations, prompt.status, prompt.degraded, prompt)
    yield _StreamEnd(text, extra, "content_filter" if prompt.refusal else "stop")


def _extra(
    trace_id: str | None, citations: Sequence[Citation], status: Any, degraded: Sequence[str], result: Result | None
) -> Extra:
    return Extra(
        trace_id=trace_id,
        citations=list(citations),
        status=status,
        degraded=list(degraded),
        total=result.total if result is not None else None,
        complete=result.complete if result is not None else None,
        explanation=result.explanation if result is not None else None,
    )


def _completion_response(end: _StreamEnd, body: ChatBody) -> Response:
    said = Said(content=end.text or None, tool_calls=list(end.tool_calls) or None)
    choice = CompletionChoice(message=said, finish_reason=end.finish_reason)
    id, created = _new_id(), int(time.time())
    whole = Completion(id=id, created=created, model=body.model, choices=[choice], usage=end.used, signalbox=end.extra)
    return json_response(whole)


async def _events(
    first: str | _StreamEnd, pieces: AsyncGenerator[str | _StreamEnd], body: ChatBody
) -> AsyncIterator[bytes]:
    """Yield the chunks in OpenAI's form: role, text, tool calls, finish reason, or an error; at the end "[DONE]".

    The last chunk before "[DONE]" has the key `signalbox`, unless it is an unexpected error.
    """
    created = {"created": int(time.time()), "model": body.model}
    envelope: Json = {"id": _new_id(), "object": "chat.completion.chunk", **created}
    unused = {"usage": None} if body.reports_usage else {}

    def chunk(delta: Json, finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _event(envelope | {"choices": [choice]} | unused | more)

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(pieces):
            piece = first
            while isinstance(piece, str):
                yield chunk({"content": piece})
                piece = await anext(pieces)
    except (Exception, CancelledError) as error:
        # The status is already sent, so the error goes into the stream.
        problem = logged_problem(error, _log, "the stream of a chat answer failed")
        yield _event({"error": openai_error_fields(problem)})
    else:
        extra = piece.extra.model_dump(mode="json")
        if piece.tool_calls:
            yield chunk({"tool_calls": [{"index": n, **call} for n, call in enumerate(piece.tool_calls)]})
        if piece.unfinished:
            unfinished = Problem(503, "model-unavailable", "the model did not finish its answer; ask again")
            yield _event({"error": openai_error_fields(unfinished), "signalbox": extra})
        elif body.reports_usage:
            yield chunk({}, piece.finish_reason)
            yield _event(envelope | {"choices": [], "usage": piece.used.model_dump(), "signalbox": extra})
        else:
            yield chunk({}, piece.finish_reason, signalbox=extra)
    yield format_sse_event(data_str="[DONE]")


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _event(data: Json) -> bytes:
    return format_sse_event(data_str=json.dumps(data))


def _problem_of_openai_field(error: BadRequest) -> Problem:
    """Return the problem for an error, with the field that OpenAI's request has instead: "query" -> "messages"."""
    first = error.where.partition(".")[0]
    where = "messages" if first == "query" else error.where
    where = f"signalbox.{where}" if first in ChatOptions.model_fields else where
    problem = problem_of(error)
    detail = problem.detail.replace(error.where, where, 1) if problem.detail.startswith(error.where) else problem.detail
    errors = [one.model_copy(update={"where": where, "detail": detail}) for one in problem.errors]
    return Problem(problem.status, problem.kind, detail, errors=errors, headers=problem.headers)


def _model(name: str) -> ModelEntry:
    return ModelEntry(id=name, created=_STARTED)
