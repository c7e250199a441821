"""Tool calls: pass on only calls of tools that the caller offered, with arguments that fit the tool's schema.

Names and arguments come from the model, schemas from the caller. Both may be hostile, so the work is bounded and no
reference is fetched. A call whose schema cannot be evaluated is dropped. The request itself is not refused: models
accept schemas that no validator accepts, and the tool may never be called.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry

from agent.types import ModelOptions

Json = dict[str, Any]
_Errors = Iterator[ValidationError]
_Check = Callable[[Any, Any, Any, Any], _Errors]

_PROCESSOR_S = 0.5
"""CPU seconds for all calls of an answer.

A call takes about 0.1 ms; a garbage collection in between may take 0.2 s in a large process.
"""
_LONGEST_PATTERN = 1000
_LONGEST_MATCHED = 10_000


class _Unevaluable(Exception):
    """The schema cannot be evaluated, or not within the CPU time."""


def permitted(calls: Sequence[Json], options: ModelOptions | None) -> tuple[Json, ...]:
    """Return the calls that may be passed on, unchanged and in order. Blocks for up to about 0.6 s.

    Args:
        calls: as in `agent.llm.model.Reply.tool_calls`.
        options: the request's options; `tools` and `tool_choice` decide.
    """
    offered = _offered(options)
    evaluator, passed = _Evaluator(offered), dict[str, Json]()
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        # Results are matched by the call's id, so a second call with the same id could get none.
        if call["type"] != "function" or name not in offered or call["id"] in passed:
            continue
        if evaluator.fits(arguments, name):
            passed[call["id"]] = call
    return tuple(passed.values())


def _offered(options: ModelOptions | None) -> dict[str, Any]:
    """Return the parameter schema of every function that may be called, by name; {} for a function without one."""
    tools = (options.tools if options else None) or ()
    functions = [one.get("function") for one in tools if one.get("type", "function") == "function"]
    offered = {
        one["name"]: {} if one.get("parameters") is None else one["parameters"]
        for one in functions
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and one["name"]
    }
    chosen = _chosen(options.tool_choice if options else None)
    return {name: schema for name, schema in offered.items() if chosen is None or name in chosen}


def _chosen(choice: str | Mapping[str, Any] | None) -> set[str] | None:
    """Return the names that `tool_choice` permits; None if it permits all. An unknown form permits none."""
    if choice in (None, "auto", "required"):
        return None
    if not isinstance(choice, Mapping):
        return set()
    allowed = choice.get("allowed_tools")
    tools = allowed.get("tools") if isinstance(allowed, Mapping) else [choice]
    functions = [one.get("function") for one in tools if isinstance(one, Mapping)] if isinstance(tools, list) else []
    return {str(one.get("name")) for one in functions if isinstance(one, Mapping)}


class _Evaluator:
    """Checks arguments against function schemas, within one budget of CPU time."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas, self._validators = schemas, dict[str, Any]()
        self._ends = time.thread_time() + _PROCESSOR_S
        own: dict[str, _Check] = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": _unique_items,
            "unevaluatedItems": _unevaluable,
            "unevaluatedProperties": _unevaluable,
        }
        self._drafts = [
            extend(draft, {name: self._bounded(name, own.get(name, check)) for name, check in draft.VALIDATORS.items()})
            for draft in (Draft202012Validator, Draft7Validator)
        ]

    def fits(self, arguments: str, name: str) -> bool:
        """Return whether the arguments are a JSON object that the function's schema allows."""
        if time.thread_time() > self._ends:
            return False
        try:
            schema = self._schemas[name]
            # Some servers send an empty text for a function without parameters.
            value = {} if not arguments.strip() and _has_no_parameters(schema) else _strict_json(arguments)
            if not isinstance(value, dict):
                return False
            if name not in self._validators:
                self._validators[name] = self._validator(schema)
            fit: bool = self._validators[name].is_valid(value)
        except Exception:
            # The schema may be anything, and a validator can fail in many ways on an invalid one.
            return False
        return fit

    def _validator(self, schema: Any) -> Any:
        newest, older = self._drafts
        draft = older if isinstance(schema, dict) and "draft-07" in str(schema.get("$schema")) else newest
        # An empty registry makes references to other documents an error; they are never fetched.
        return draft(_without_drafts(schema), registry=Registry())

    def _bounded(self, keyword: str, check: _Check) -> _Check:
        refers = keyword in ("$ref", "$dynamicRef")

        def bounded(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
            # Refuse references to the library's own meta-schemas: their validators have no time limit.
            if time.thread_time() > self._ends or (refers and not value.startswith("#")):
                raise _Unevaluable
            return check(validator, value, instance, schema)

        return bounded

    def _matches(self, pattern: str, text: str) -> bool:
        """Return whether the pattern occurs in the text, in linear time; look-around and back-references are errors."""
        if len(pattern) > _LONGEST_PATTERN or len(text) > _LONGEST_MATCHED or time.thread_time() > self._ends:
            raise _Unevaluable
        expression = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        return expression.isinstance_python(text)

    def _pattern(self, validator: Any, pattern: Any, instance: Any, schema: Any) -> _Errors:
        if isinstance(instance, str) and not self._matches(pattern, instance):
            yield ValidationError("does not match")

    def _pattern_properties(self, validator: Any, patterns: Any, instance: Any, schema: Any) -> _Errors:
        if isinstance(instance, dict):
            for pattern, allowed in patterns.items():
                for name, value in instance.items():
                    if self._matches(pattern, name):
                        yield from validator.descend(value, allowed)

    def _additional_properties(self, validator: Any, allowed: Any, instance: Any, schema: Any) -> _Errors:
        if isinstance(instance, dict):
            known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
            for name, value in instance.items():
                if name not in known and not any(self._matches(one, name) for one in patterns):
                    yield from validator.descend(value, allowed)


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> _Errors:
    # Linear time; the library compares every pair.
    if wanted and isinstance(instance, list) and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError("has items twice")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _unevaluable(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    # The library evaluates these keywords without calling the others, and so without a time limit.
    raise _Unevaluable


def _has_no_parameters(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.get("properties")


def _without_drafts(schema: Any) -> Any:
    """Remove `$schema` from all parts: it would bring in a validator without a time limit."""
    if isinstance(schema, dict):
        return {
            key: _without_drafts(value)
            for key, value in schema.items()
            if not (key == "$schema" and isinstance(value, str))
        }
    return [_without_drafts(one) for one in schema] if isinstance(schema, list) else schema


def _strict_json(text: str) -> Any:
    """Parse a JSON text strictly, so that it means the same to every parser.

    Raises:
        ValueError: the text is not JSON, holds NaN or half of a surrogate pair, or repeats a key.
        RecursionError: it is nested too deeply.
    """
    value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError, a ValueError, for half of a pair
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> Json:
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return value
