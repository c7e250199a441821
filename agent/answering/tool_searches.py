"""Run the searches of a model that calls retrieval as a tool (mode "tool"), within what the caller may read.

The model writes the query and may narrow the search. Tenant, principals, filter, sources and the other options are the
caller's: no argument of a tool call can widen them. Passage numbers continue from search to search.
"""

import json
import re
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agent.answering import search_tool
from agent.llm.model import Reply
from agent.llm.reply_json import strip_reasoning
from agent.llm.token_estimates import estimate_tokens
from agent.options import deadline_shares
from agent.types import (
    LEAST_TIMEOUT_S,
    AskRequest,
    AugmentRequest,
    Citation,
    Prompt,
    RankedHit,
    Status,
)
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.types import Chunk, Scope
from retrievers.postgres.catalogue.catalogue import filterable_fields

if TYPE_CHECKING:
    from agent.answering.decision_record import DecisionRecord
    from agent.settings import Settings

Json = dict[str, Any]
NAME = search_tool.NAME
MOST_AT_ONCE = 4
"""Maximum number of searches that are run per turn of the model."""
_ARGUMENTS = ("query", "collection", "filter", "top_k")
_LEAST_TOKENS = 50
"""Minimum tokens left for passages; with fewer, no further search is run."""
_LONGEST_KEPT = 2000
_MOST_NAMES = 40
_PLAIN_NAME = re.compile(r"[\w.-]{1,60}")
_FIXED = AugmentRequest.model_fields.keys() - {
    "query", "messages", "page", "template", "budget_tokens", "timeout_s", "explain", "principals",
}  # fmt: skip
"""Options of the caller that apply to every search."""

Outcome = Literal["searched", "refused", "unavailable", "dropped"]


class SearchRunner(Protocol):
    """Runs one search on the caller's behalf: `agent.pipeline.Pipeline.run_tool_search`, bound to the caller."""

    def __call__(
        self, request: AugmentRequest, *, shown: Sequence[Citation], outside: bool
    ) -> Awaitable[tuple[Prompt, "DecisionRecord"]]: ...


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """The record of one tool call.

    Attributes:
        round: number of the model's turn that holds the call, from 1.
        arguments: the model's arguments, unchanged.
        outcome: `dropped` means not run, because a tool of the caller was called too, or there were too many calls.
        reason: why nothing was searched.
        prompt, decision: the result; None if nothing was searched.
    """

    round: int
    arguments: str
    outcome: Outcome
    reason: str | None = None
    elapsed_ms: float = 0.0
    prompt: Prompt | None = None
    decision: "DecisionRecord | None" = None

    def to_json(self) -> Json:
        """Return the call as JSON values."""
        found = self.prompt
        return {
            "round": self.round,
            "arguments": self.arguments[:_LONGEST_KEPT],
            "outcome": self.outcome,
            "reason": self.reason,
            "query": found.query if found else None,
            "filter": found.intent.filter if found else None,
            "status": found.status if found else None,
            "citations": [one.n for one in found.citations] if found else [],
            "hits": [hit.id for hit in found.hits] if found else [],
            "elapsed_ms": self.elapsed_ms,
        }


@dataclass(slots=True)
class ToolSearches:
    """The searches for one answer.

    Args:
        request: the caller's request, whose options apply to every search.
        scope: what the caller may read.
        outside: names of sources that are paid per search.
    Attributes:
        records: all calls of the tool.
        passages: text of each citation from number 1, over all searches.
    """

    run_search: SearchRunner
    request: AskRequest
    settings: "Settings"
    scope: Scope
    outside: Collection[str] = ()
    records: list[ToolSearch] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    _turns: int = 0
    _spent: int = 0
    _refused: int = 0
    _search_by: float = 0.0
    _ends_at: float = 0.0

    def set_deadlines(self, started: float, ends_at: float) -> None:
        """Set when the request arrived and when the answer must be complete, on the clock of `time.monotonic`."""
        self._search_by, self._ends_at = started + deadline_shares.TOOL_SEARCHES_BY * (ends_at - started), ends_at

    @property
    def may_search(self) -> bool:
        """Whether the model may search again: turns, tokens and time are left, and at most one call was refused."""
        return (
            self._turns < self.settings.max_rounds
            and self._remaining_tokens >= _LEAST_TOKENS
            and self._refused < 2
            and time.monotonic() < self._search_by
        )

    @property
    def round(self) -> int:
        """Number of the model's next turn, from 1."""
        return self._turns + 1

    @property
    def _remaining_tokens(self) -> int:
        return self.request.budget_tokens - self._spent

    def options(self) -> Json:
        """Return the options of the model's next turn: the caller's, and while `may_search` is true the search tool."""
        given = self.request.model_options.model_dump(exclude_none=True) if self.request.model_options else {}
        choice = given.pop("tool_choice", None)
        # With tool_choice "none" the caller's tools are not offered, but the service's search tool still is.
        own = list(given.pop("tools", ())) if choice != "none" else []
        is_forced = isinstance(choice, dict) and choice.get("function") == {"name": NAME}
        if choice == "none" or ((is_forced or (choice == "required" and not own)) and self._turns):
            choice = None
        if isinstance(choice, dict) and isinstance(allowed := choice.get("allowed_tools"), dict):
            among = [*(allowed.get("tools") or ()), {"type": "function", "function": {"name": NAME}}]
            choice = {**choice, "allowed_tools": {**allowed, "tools": among}} if self.may_search else choice
        if not self.may_search:
            # Servers accept a history with tool calls only if the request offers tools.
            tools, choice = (own, choice) if own else ([self._schema()], "none")
        else:
            tools = [*own, self._schema()]
        return {**given, "tools": tools, **({"tool_choice": choice} if choice else {})}

    def _schema(self) -> Json:
        """Return the definition of the search tool for the collections that the caller may read.

        Its description names metadata fields and collections. The argument `collection` is left out if the caller
        fixed the collection.
        """
        names = [name for name in _ARGUMENTS if name != "collection" or self.request.collection is None]
        filterable = filterable_fields(self.scope).items()
        fields = _listed(f"{name} ({one.type})" for name, one in filterable if _is_plain(name))
        collections = _listed(one.name for one in self.scope.all_collections if _is_plain(one.name))
        about = f" Metadata fields: {fields}." if fields else ""
        about += f" Collections: {collections}." if collections and self.request.collection is None else ""
        return search_tool.schema(names=names, about=about)

    def accept_calls(self, calls: Sequence[Json], *, calls_others: bool) -> bool:
        """Return whether to run these calls; calls that are not run are recorded as dropped.

        Args:
            calls: calls of the search tool.
            calls_others: whether a tool of the caller is called too, which ends the rounds.
        """
        accepted = bool(calls) and not calls_others and self.may_search
        if calls and not accepted:
            reason = "the model also called a tool of the caller" if calls_others else "the tool was no longer offered"
            self.records += [ToolSearch(self.round, _arguments(call), "dropped", reason) for call in calls]
        return accepted

    async def run_calls(
        self, calls: Sequence[Json], reply: Reply, prompt: Prompt, base: "DecisionRecord"
    ) -> tuple[list[Json], Prompt]:
        """Run the searches of one turn of the model.

        Args:
            calls: calls of the search tool, with distinct ids.
            reply: the model's reply that holds the calls.
            prompt: the prompt with everything found so far.
            base: decision record whose `calls` get the model calls made by the searches.
        Returns:
            The new messages (the model's turn and the tool's answers), and the prompt with the new results.
        """
        turns: list[Json] = [
            {"role": "assistant", "content": strip_reasoning(reply.text) or None, "tool_calls": list(calls)}
        ]
        for number, call in enumerate(calls):
            content, record = await self._run_call(call, number, prompt.citations)
            turns.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            self.records.append(record)
            if record.prompt is not None and record.decision is not None:
                self._spent += estimate_tokens(content)
                self.passages += record.decision.passages
                base.calls.records += record.decision.calls.records
                prompt = _merge_results(prompt, record.prompt, estimate_tokens(content))
        self._turns += 1
        return turns, prompt

    async def _run_call(self, call: Json, number: int, shown: Sequence[Citation]) -> tuple[str, ToolSearch]:
        """Return the tool's answer to one call, and the record of the call.

        Args:
            number: index of the call in its turn.
            shown: citations of all passages shown so far.
        """
        began, arguments = time.monotonic(), _arguments(call)
        if number >= MOST_AT_ONCE:
            error = BadRequest(f"at most {MOST_AT_ONCE} searches run at once", where="tool_calls")
            return search_tool.error_output(error), ToolSearch(self.round, arguments, "dropped", str(error))
        if self._remaining_tokens < _LEAST_TOKENS:
            error = BadRequest("there is no room for more passages: answer from those there are", where="tool_calls")
            return search_tool.error_output(error), ToolSearch(self.round, arguments, "dropped", str(error))
        try:
            request = self._search_request(arguments)
            made = [one.prompt for one in self.records if one.prompt is not None]
            paid = sum(one.source in self.outside and one.status != "skipped" for it in made for one in it.outcomes)
            outside = paid < self.settings.metered_searches
            prompt, decision = await self.run_search(request, shown=shown, outside=outside)
        except BadRequest as error:
            self._refused += 1
            # Explain the mistake once; a second refusal only tells the model to go on without the tool.
            is_first, again = self._refused == 1, '{"error": "refused again: answer without it"}'
            said = search_tool.error_output(error) if is_first else again
            return said, ToolSearch(self.round, arguments, "refused", str(error), _since(began))
        except Unavailable as error:
            said = json.dumps({"error": "the search is unavailable now"})
            return said, ToolSearch(self.round, arguments, "unavailable", str(error), _since(began))
        record = ToolSearch(self.round, arguments, "searched", None, _since(began), prompt, decision)
        return prompt.prompt, record

    def _search_request(self, arguments: str) -> AugmentRequest:
        """Return the search request for a call, within the caller's options.

        Raises:
            BadRequest: the arguments do not fit the tool's schema, or exceed what the caller may search.
        """
        request = self.request
        fixed = request.model_dump(include=set(_FIXED), exclude_unset=True, exclude_none=True)
        said = search_tool.read_arguments(arguments, names=_ARGUMENTS)
        if request.collection is not None and said.get("collection", request.collection) != request.collection:
            what = f'only the collection "{request.collection}" can be searched'
            raise BadRequest(what, where="collection", valid=(request.collection,))
        if not str(said.get("query") or "").strip():
            raise BadRequest("the query is empty: give a self-contained question or search text", where="query")
        if said.get("filter") is not None and request.filter is not None:
            said["filter"] = {"type": "and", "filters": [request.filter, said["filter"]]}
        if "top_k" in fixed:
            said["top_k"] = min(said["top_k"], fixed["top_k"])
        mode = request.intent or self.settings.intent
        left_s = self._ends_at - time.monotonic()
        bounds = {
            # The model has worded the query, so no second model needs to read it.
            "intent": "rules" if mode == "auto" else mode,
            "timeout_s": min(max(deadline_shares.TOOL_SEARCH * left_s, LEAST_TIMEOUT_S), self.settings.timeout_s),
            "budget_tokens": self._remaining_tokens,
        }
        return AugmentRequest.model_validate({**fixed, **said, **bounds})

    @property
    def has_invalid_calls(self) -> bool:
        """Whether two calls were refused as invalid, or one call was and no search was run after it."""
        made = [one.outcome for one in self.records if one.outcome in ("searched", "refused")]
        return self._refused > 1 or made[-1:] == ["refused"]

    def final_prompt(self, prompt: Prompt) -> Prompt:
        """Return the final prompt; with "search_unavailable" in `degraded` if a search could not be run."""
        if all(one.outcome != "unavailable" for one in self.records):
            return prompt
        return prompt.model_copy(update={"degraded": (*prompt.degraded, "search_unavailable")})

    def complete_record(self, base: "DecisionRecord") -> "DecisionRecord":
        """Return the decision record `base` with the results of all searches added."""
        made = [one.decision for one in self.records if one.decision is not None]
        ranking = {hit.id: hit for one in made for hit in one.ranking}
        return replace(
            base,
            step_results=tuple(result for one in made for result in one.step_results),
            ranking=tuple(ranking.values()),
            stated=tuple(stated for one in made for stated in one.stated),
            rounds=tuple(one for decision in made for one in decision.rounds),
            reranking=next((one.reranking for one in made if one.reranking is not None), None),
            passages=tuple(self.passages),
        )


def open_tool_searches(
    run_search: SearchRunner, request: AskRequest, settings: "Settings", scope: Scope, outside: Collection[str]
) -> ToolSearches:
    """Return the searches for a request, none of them run yet. Arguments as for `ToolSearches`.

    Raises:
        BadRequest: the request has options without meaning in this mode, or a tool with the name of the search tool.
    """
    for name, odd in (("template", request.template is not None), ("page", request.page != 1)):
        if odd:
            raise BadRequest(f'{name} has no effect in mode "tool", where the model itself searches', where=name)
    for place, one in enumerate((request.model_options.tools if request.model_options else None) or ()):
        function = one.get("function")
        if isinstance(function, Mapping) and function.get("name") == NAME:
            what = f'"{NAME}" is the name of the search tool in mode "tool": give your tool another name'
            raise BadRequest(what, where=f"tools.{place}.function.name")
    return ToolSearches(run_search, request, settings, scope, outside)


def split_calls(calls: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the calls of the search tool, one per id, and all other calls.

    If two search calls have the same id, the second is returned among the other calls.
    """
    ours: dict[str, Json] = {}
    others = []
    for call in calls:
        is_ours = call["type"] == "function" and call["function"]["name"] == NAME
        if is_ours and call["id"] not in ours:
            ours[call["id"]] = call
        else:
            others.append(call)
    return list(ours.values()), others


def shown_number(chunk: Chunk, shown: Sequence[Citation]) -> int | None:
    """Return the number of the citation in `shown` that contains the whole passage; None if there is none."""
    document = str(chunk.id).rpartition("#")[0]
    for one in shown:
        if one.chunk_id.rpartition("#")[0] == document and one.start <= chunk.start and chunk.end <= one.end:
            return one.n
    return None


_RANKS: Mapping[Status, int] = {"no_retrieval_needed": 0, "nothing_found": 1, "weak": 2, "found": 3}


def _merge_results(before: Prompt, found: Prompt, tokens: int) -> Prompt:
    """Return the prompt `before` with the result `found` of one more search added; the better status is kept.

    Args:
        tokens: tokens of the tool's answer.
    """
    hits: dict[str, RankedHit] = {hit.id: hit for hit in (*found.hits, *before.hits)}
    ordered = dict.fromkeys([*(hit.id for hit in before.hits), *(hit.id for hit in found.hits)])
    intent = before.intent.model_copy(
        update={"kind": "retrieve", "searches": tuple(dict.fromkeys((*before.intent.searches, *found.intent.searches)))}
    )
    return before.model_copy(
        update={
            "intent": intent,
            "plan": (*before.plan, *found.plan),
            "hits": tuple(hits[id].model_copy(update={"rank": rank}) for rank, id in enumerate(ordered, 1)),
            "table": found.table or before.table,
            "outcomes": (*before.outcomes, *found.outcomes),
            "relaxed": (*before.relaxed, *(one for one in found.relaxed if one not in before.relaxed)),
            "degraded": tuple(dict.fromkeys((*before.degraded, *found.degraded))),
            "status": max(before.status, found.status, key=lambda status: _RANKS[status]),
            "citations": (*before.citations, *found.citations),
            "tokens": before.tokens + tokens,
        }
    )


def _arguments(call: Json) -> str:
    return str(call["function"]["arguments"])


def _is_plain(name: str) -> bool:
    """Return whether a name may appear in the tool's description: one word of at most 60 letters, digits, `_.-`."""
    return bool(_PLAIN_NAME.fullmatch(name))


def _listed(names: Any) -> str:
    return ", ".join(list(dict.fromkeys(names))[:_MOST_NAMES])


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)
