"""Tool calls: pass on only calls of tools that the caller offered, with arguments that fit the tool's schema.

Keywords of all drafts of JSON Schema are checked, since tools seldom name their draft. Keywords of draft 3 only, such
as `"required": true` in a property, are checked only if the schema names draft 3. `format` is not checked.

Names and arguments come from the model, schemas from the caller. Both may be hostile, so CPU time is limited and no
reference is fetched. A call whose schema cannot be evaluated is dropped. The request itself is not refused: models
accept schemas that no validator accepts, and the tool may never be called.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from jsonschema import (
    Draft3Validator,
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry

from agent.types import ModelOptions

Json = dict[str, Any]
_Tool = tuple[str, str]
"""A tool's type and name."""
_Errors = Iterator[ValidationError]
_Check = Callable[[Any, Any, Any, Any], _Errors]

_NO_PARAMETERS: Json = {"type": "object", "properties": {}, "additionalProperties": False}
_PROCESSOR_S = 0.5
"""Maximum CPU seconds to check all calls of an answer.

A call takes about 0.1 ms; a garbage collection in between may take 0.2 s in a large process.
"""
_DRAFTS = {
    "draft-03": Draft3Validator,
    "draft-04": Draft4Validator,
    "draft-06": Draft6Validator,
    "draft-07": Draft7Validator,
    "2019-09": Draft201909Validator,
}
_KEYWORDS = {**Draft7Validator.VALIDATORS, **Draft201909Validator.VALIDATORS, **Draft202012Validator.VALIDATORS}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NOT_COLLECTED = re.compile(r'"(patternProperties|\$recursiveRef|\$(ref|dynamicRef)": "[^#])')
"""Keywords in whose schemas jsonschema does not find the evaluated properties, or is too slow to find them."""
_LONGEST_PATTERN = 1000
_LONGEST_MATCHED = 10_000


class _Unevaluable(Exception):
    """The schema cannot be evaluated, or not within the CPU time."""


def permitted_calls(calls: Sequence[Json], options: ModelOptions | None) -> tuple[Json, ...]:
    """Return the calls that may be passed on, unchanged and in order. Blocks for up to about 0.6 s.

    Args:
        calls: as in `agent.llm.model.Reply.tool_calls`.
        options: the request's options; `tools`, `tool_choice` and `parallel_tool_calls` decide.
    """
    offered = _offered(options)
    evaluator, passed = _CallValidator(offered), dict[str, Json]()
    for call in calls:
        tool = _tool(call)
        # The caller sends each result under the call's id, so a second call with the same id could get no result.
        if tool is None or tool not in offered or call["id"] in passed:
            continue
        if evaluator.fits(call, tool):
            passed[call["id"]] = call
    return tuple(passed.values())[: 1 if options and options.parallel_tool_calls is False else None]


def _offered(options: ModelOptions | None) -> dict[_Tool, list[Json]]:
    """Return {tool: its definitions} of every tool that may be called; a tool offered twice has two definitions."""
    offered: dict[_Tool, list[Json]] = {}
    chosen = _chosen(options.tool_choice if options else None)
    for one in (options.tools if options else None) or ():
        if (tool := _tool(one)) and (chosen is None or tool in chosen):
            offered.setdefault(tool, []).append(one[tool[0]])
    return offered


def _tool(value: object) -> _Tool | None:
    """Return the (type, name) of a tool's offer, choice or call; None if `value` is not in OpenAI's form."""
    kind = value.get("type", "function") if isinstance(value, Mapping) else None
    named = value.get(kind) if isinstance(value, Mapping) and kind in ("function", "custom") else None
    name = named.get("name") if isinstance(named, Mapping) else None
    return (str(kind), name) if isinstance(name, str) and name else None


def _chosen(choice: str | Mapping[str, Any] | None) -> set[_Tool | None] | None:
    """Return the tools that `tool_choice` permits; None if it permits all. An unknown form permits none."""
    if choice in (None, "auto", "required"):
        return None
    if not isinstance(choice, Mapping):
        return set()
    allowed = choice.get("allowed_tools")
    tools = allowed.get("tools") if isinstance(allowed, Mapping) else [choice]
    return set(map(_tool, tools)) if isinstance(tools, list) else set()


class _CallValidator:
    """Checks calls against the definitions of their tools, within one budget of CPU time."""

    def __init__(self, tools: Mapping[_Tool, list[Json]]) -> None:
        self._tools, self._validators = tools, dict[_Tool, list[Any]]()
        self._ends = time.thread_time() + _PROCESSOR_S
        self._draft = cache(self._bounded_draft)

    def fits(self, call: Json, tool: _Tool) -> bool:
        """Return whether the call fits every definition of the tool."""
        try:
            self._check_time()
            if tool[0] == "custom":
                return all(self._is_input(call["custom"]["input"], one.get("format")) for one in self._tools[tool])
            arguments, schemas = call["function"]["arguments"], [_schema(one) for one in self._tools[tool]]
            # Some servers send an empty text for a function without parameters.
            is_empty = not arguments.strip() and all(map(_has_no_parameters, schemas))
            value = {} if is_empty else _strict_json(arguments)
            if tool not in self._validators:
                strict = [one.get("strict") is True for one in self._tools[tool]]
                self._validators[tool] = list(map(self._validator, schemas, strict))
            return isinstance(value, dict) and all(one.is_valid(value) for one in self._validators[tool])
        except Exception:
            # The schema may be anything, and a validator can fail in many ways on an invalid one.
            return False

    def _is_input(self, text: str, form: Any) -> bool:
        """Return whether a custom tool accepts the text; False if its grammar is in Lark's syntax.

        Args:
            form: the tool's `format`; None accepts any text.
        """
        if form is None or form["type"] == "text":
            return True
        grammar = form["grammar"]
        return grammar["syntax"] == "regex" and self._matches(rf"\A(?:{grammar['definition']})\z", text)

    def _validator(self, schema: Any, strict: bool) -> Any:
        named = str(schema.get("$schema")) if isinstance(schema, dict) else ""
        schema = _without_drafts(schema)
        text = json.dumps(schema)
        if "unevaluatedProperties" in text and _NOT_COLLECTED.search(text):
            raise _Unevaluable
        draft = next((one for name, one in _DRAFTS.items() if name in named), Draft202012Validator)
        # An empty registry makes references to other documents an error; they are never fetched.
        return self._draft(draft, strict)(schema, registry=Registry())

    def _bounded_draft(self, draft: Any, strict: bool) -> Any:
        checks = {**_KEYWORDS, **draft.VALIDATORS}
        own: dict[str, _Check] = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": _unique_items,
            "multipleOf": _multiple_of,
            "exclusiveMinimum": _exclusive("minimum", checks["exclusiveMinimum"]),
            "exclusiveMaximum": _exclusive("maximum", checks["exclusiveMaximum"]),
            "items": _items(checks["items"]),
            "required": _required,
            "unevaluatedProperties": self._unevaluated_properties(checks["unevaluatedProperties"]),
            "unevaluatedItems": _unevaluable,
            **({"properties": _all_properties(checks["properties"])} if strict else {}),
        }
        return extend(
            draft,
            {name: self._bounded(name, own.get(name, check)) for name, check in checks.items()},
            # jsonschema tests every subschema in which it looks for evaluated properties for being a boolean. So the
            # test is a place to check the time.
            type_checker=draft.TYPE_CHECKER.redefine("boolean", self._is_boolean),
        )

    def _bounded(self, keyword: str, check: _Check) -> _Check:
        def bounded(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
            self._check_time()
            # Refuse references to the library's own meta-schemas: their validators have no time limit.
            if keyword in _REFERENCES and not (value == "#" or (value.startswith("#") and keyword != "$recursiveRef")):
                raise _Unevaluable
            return check(validator, value, instance, schema)

        return bounded

    def _is_boolean(self, checker: object, value: object) -> bool:
        self._check_time()
        return isinstance(value, bool)

    def _check_time(self) -> None:
        if time.thread_time() > self._ends:
            raise _Unevaluable

    def _matches(self, pattern: str, text: str) -> bool:
        """Return whether the regular expression matches somewhere in the text, in linear time.

        Look-around and back-references raise an error, since they have no linear algorithm here.
        """
        self._check_time()
        if len(pattern) > _LONGEST_PATTERN or len(text) > _LONGEST_MATCHED:
            raise _Unevaluable
        expression = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        return expression.isinstance_python(text)

    def _unevaluated_properties(self, check: _Check) -> _Check:
        def checked(validator: Any, allowed: Any, instance: Any, schema: Any) -> _Errors:
            if isinstance(instance, dict):
                # jsonschema searches a list for each name; the schema decides how long the list is.
                yield from check(validator, allowed, _TimedObject(instance, self._check_time), schema)

        return checked

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


class _TimedObject(dict[str, Any]):
    """A JSON object that checks the CPU time for each name over which one iterates."""

    def __init__(self, instance: Json, check_time: Callable[[], None]) -> None:
        super().__init__(instance)
        self._check_time = check_time

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self._check_time()
            yield name


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> _Errors:
    # In linear time, since jsonschema compares every pair.
    if wanted and isinstance(instance, list) and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError("has items twice")


def _canonical(value: Any) -> str:
    return json.dumps(json.loads(json.dumps(value), parse_float=_number), sort_keys=True)


def _number(text: str) -> int | float:
    """Return the number in a JSON text; an int for 1.0, so that it equals 1."""
    number = float(text)
    return int(Decimal(text)) if number.is_integer() else number


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> _Errors:
    # With decimal fractions, since 0.07 / 0.01 is not a whole number in binary floating point.
    if validator.is_type(instance, "number") and (Fraction(str(instance)) / Fraction(str(step))).denominator != 1:
        yield ValidationError("is no multiple")


def _exclusive(inclusive: str, check: _Check) -> _Check:
    """Wrap the check of a keyword so that it also handles draft 4: `exclusiveMinimum: true` makes `minimum` exclusive.

    Args:
        inclusive: "minimum" or "maximum".
        check: the check of later drafts, in which the exclusive limit is a number.
    """

    def checked(validator: Any, limit: Any, instance: Any, schema: Any) -> _Errors:
        limit = (schema.get(inclusive) if limit else None) if isinstance(limit, bool) else limit
        if limit is not None:
            yield from check(validator, limit, instance, schema)

    return checked


def _items(check: _Check) -> _Check:
    """Wrap the check of `items` so that it also handles drafts before 2020-12: `items` may list one schema per item."""

    def checked(validator: Any, items: Any, instance: Any, schema: Any) -> _Errors:
        by_place = isinstance(items, list)
        yield from (Draft7Validator.VALIDATORS["items"] if by_place else check)(validator, items, instance, schema)

    return checked


def _required(validator: Any, names: Any, instance: Any, schema: Any) -> _Errors:
    # In draft 3 this is a boolean in the schema of a property; its check of `properties` handles it.
    if not isinstance(names, bool):
        yield from Draft7Validator.VALIDATORS["required"](validator, names, instance, schema)


def _all_properties(check: _Check) -> _Check:
    """Wrap the check of `properties` for OpenAI's strict mode: every property is required, and no other is allowed."""

    def checked(validator: Any, properties: Any, instance: Any, schema: Any) -> _Errors:
        if isinstance(instance, dict) and instance.keys() != properties.keys():
            yield ValidationError("has not exactly these properties")
        yield from check(validator, properties, instance, schema)

    return checked


def _unevaluable(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    # jsonschema collects the items of all subschemas, which may take more memory than there is.
    raise _Unevaluable


def _schema(function: Json) -> Any:
    """Return the schema of a function's arguments; a function without one has no parameters."""
    return _NO_PARAMETERS if function.get("parameters") is None else function["parameters"]


def _has_no_parameters(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.get("properties")


def _without_drafts(schema: Any) -> Any:
    """Return the schema without `$schema` at any level; with it, jsonschema would use validators without time limit."""
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
