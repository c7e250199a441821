"""`signalbox doctor`: check what works and say how to fix what does not."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from agent.llm.model import timeout_reason
from agent.observe.health import LEAST_FREE_BYTES, free_bytes
from agent.options import prompt_fields, rank_features
from agent.options.rank_features import RankFeature
from agent.options.rerankers import reranker_label
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import Reranker, validate_scores
from agent.serve.cli.doctor import server_checks, source_checks, standby_checks
from agent.serve.cli.doctor.check_result import CheckResult
from agent.service.factory import database_addresses
from agent.settings import Settings, load_settings, unknown_variables
from retrievers import registry
from retrievers.core.credentials import mask_credentials
from retrievers.core.errors import RetrievalError, Unavailable
from retrievers.core.metadata import Field
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Chunk, ChunkId, Collection, unrestricted_viewer
from retrievers.postgres.server.schema_migrations import check_conninfo

_SAFE_VECTOR = (0, 8, 4)
# Importing litellm alone takes up to 7 s.
_MODEL_TIMEOUT_S = 15.0
_RANKED_BY = {"prior": ("number",), "recency": ("date",)}
"""Field types that a rank feature accepts; tags accept any type."""


async def run_checks() -> list[CheckResult]:
    """Run every check, in the order of their dependencies."""
    try:
        settings = load_settings()
    except RetrievalError as error:
        return [CheckResult("settings", False, str(error), "correct or remove the setting")]
    return [
        _check_settings(settings),
        await _check_database(settings),
        *await standby_checks.check_standbys(settings),
        await _check_embedder(settings),
        await _check_model(settings),
        await _check_reranker(settings),
        *([await _check_rank_features(settings)] if settings.rank_features else []),
        *([await _check_prompt_fields(settings)] if settings.prompt_fields else []),
        *([_check_prompts(settings.prompts)] if settings.prompts else []),
        *await source_checks.check_sources(settings),
        _check_disk(settings),
        await server_checks.check_access(settings),
        await asyncio.to_thread(server_checks.check_port),
        server_checks.check_logs(settings),
    ]


def _check_settings(settings: Settings) -> CheckResult:
    changed = settings.model_dump(exclude_defaults=True, exclude={"sources"})
    if settings.read_urls:
        changed["read_urls"] = ", ".join(map(_without_password, settings.read_urls))
    if settings.sources:
        changed["sources"] = ", ".join(settings.sources)
    shown = ", ".join(f"{key.upper()}={_without_secret(key, str(value))}" for key, value in changed.items())
    mend = "; ".join(unknown_variables())
    return CheckResult("settings", True, shown or "all at their defaults", mend)


def _check_prompts(folder: Path) -> CheckResult:
    from prompts import BadTemplate, open_library

    try:
        library = open_library(folder)
    except BadTemplate as error:
        return CheckResult("prompts", False, str(error), "correct the file, or the setting PROMPTS")
    own = ", ".join(sorted(library.layers[0])) or "none"
    tenants = "".join(
        f"; for {tenant}: {', '.join(sorted(layer))}" for tenant, layer in sorted(library.tenants.items())
    )
    return CheckResult("prompts", True, f"{folder}: {own}{tenants}")


def _without_secret(key: str, value: str) -> str:
    if key.endswith("key") or key == "embedder_keys":
        return "***"
    if key == "reranker":
        return reranker_label(value)
    if key in ("database_url", "service_url"):
        return _without_password(value)
    return mask_credentials(value)


def _without_password(address: str) -> str:
    """Return a connection string or URL as `host=... user=...` with the password hidden."""
    try:
        check_conninfo(address)
    except RetrievalError:
        return "***"
    parts = conninfo_to_dict(address)
    return " ".join(f"{key}={'***' if 'password' in key else value}" for key, value in sorted(parts.items()))


async def _check_database(settings: Settings) -> CheckResult:
    from retrievers.postgres.connections.database import Database

    try:
        with database_addresses(settings) as (owner, service):
            async with Database(owner, service, size=1) as database:
                rows = await database.fetch(
                    settings.tenant,
                    "SELECT current_setting('server_version'), extversion, session_user"
                    " FROM pg_extension WHERE extname = 'vector'",
                    {},
                )
    except RetrievalError as error:
        return CheckResult("database", False, str(error), _advice_in(str(error)))
    except psycopg.Error as error:
        return CheckResult("database", False, " ".join(str(error).split()), "run `signalbox migrate --debug`")
    version, vector, role = rows[0]
    found = f"PostgreSQL {version}, pgvector {vector}, role {role}{'' if settings.database_url else ', embedded'}"
    if tuple(map(int, re.findall(r"\d+", vector)[:3])) < _SAFE_VECTOR:
        return CheckResult(
            "database", True, found, "pgvector below 0.8.4 can damage HNSW indexes: upgrade it, then REINDEX"
        )
    return CheckResult("database", True, found)


def _advice_in(message: str) -> str:
    """Return the advice at the end of an error message."""
    advice = message.partition("; ")[2] or message.rpartition(": ")[2]
    return advice.partition(". ")[2] or advice


async def _check_embedder(settings: Settings) -> CheckResult:
    from retrievers.embed.factory import open_embedder

    try:
        embedder = open_embedder(
            settings.embedder, base_url=settings.embedder_base_url, api_key=settings.embedder_api_key
        )
        try:
            dimension = await embedder.dimension()
        finally:
            await embedder.aclose()
    except RetrievalError as error:
        return CheckResult(
            "embedder",
            False,
            str(error),
            "set EMBEDDER to an embedder that can be loaded; minilm is part of the package",
        )
    return CheckResult("embedder", True, f"{settings.embedder}, vectors of length {dimension}")


async def _check_model(settings: Settings) -> CheckResult:
    from agent.llm.model import ModelFailed
    from agent.llm.model_factory import open_model

    if not settings.llm:
        mend = "set LLM (and LLM_BASE_URL, LLM_API_KEY) if a model should interpret questions and write answers"
        return CheckResult("model", True, "none: rules interpret the questions", mend)
    try:
        model = open_model(settings.llm, base_url=settings.llm_base_url, api_key=settings.llm_api_key)
        assert model is not None  # it is set
        try:
            return CheckResult("model", True, await model.probe(time.monotonic() + _MODEL_TIMEOUT_S))
        finally:
            await model.aclose()
    except ModelFailed as error:
        return CheckResult("model", False, f"{settings.llm}: {error.reason}", _model_advice(error.reason, settings))
    except RetrievalError as error:
        return CheckResult("model", False, str(error), "correct LLM, LLM_BASE_URL or LLM_API_KEY")


def _model_advice(reason: str, settings: Settings) -> str:
    if "HTTP 401" in reason or "HTTP 403" in reason:
        return "set LLM_API_KEY to a valid key of the provider" if settings.llm_api_key else "set LLM_API_KEY"
    if "HTTP 404" in reason or "no model" in reason:
        return "correct LLM or LLM_BASE_URL; the URL ends in /v1"
    if "HTTP 429" in reason:
        return "wait, or check the quota of the key"
    if not settings.llm_base_url:
        name = str(settings.llm)
        form = "" if "/" in name else f"; put the provider before it, for example openai/{name}"
        return f"check that the provider has the model in LLM{form}; until it answers, rules interpret the questions"
    return "check LLM_BASE_URL and that its server runs; until it answers, rules interpret the questions"


async def _check_reranker(settings: Settings) -> CheckResult:
    """Try the reranker on two passages. For RERANKER=llm no call is made: the model has its own check."""
    from agent.llm.model_factory import open_model
    from agent.retrieval.rerank import open_reranker

    name = reranker_label(settings.reranker)
    if name == "none":
        return CheckResult("reranker", True, "none: hits keep the fused order")
    try:
        llm = settings.llm if name == "llm" else None
        model = open_model(llm, base_url=settings.llm_base_url, api_key=settings.llm_api_key)
        reranker = open_reranker(settings, model)
        assert reranker is not None  # it is set
        try:
            if name == "llm":
                return CheckResult("reranker", True, "llm: the model above ranks the passages in batches")
            took_ms, sensible = await _try_reranker(reranker)
        finally:
            await reranker.aclose()
            if model is not None:
                await model.aclose()
    except Unavailable as error:
        return CheckResult("reranker", False, str(error), _reranker_advice(error.reason, settings))
    except RetrievalError as error:
        return CheckResult("reranker", False, str(error), "correct RERANKER or the other RERANKER_ settings")
    mend = "" if sensible else "it ranks an unrelated passage above the answer: check that the model is a reranker"
    return CheckResult("reranker", True, f"{name}, two passages scored in {took_ms:.0f} ms", mend)


async def _try_reranker(reranker: Reranker) -> tuple[float, bool]:
    """Rerank two passages; return the milliseconds, with loading the model, and whether the right one ranks first."""
    texts = ("Green tea is made of leaves that are steamed soon after the harvest.", "The parliament has two houses.")
    ids = [ChunkId("", "", str(number), 0) for number in range(2)]
    pool = [FusedHit(id, 0.5, 0.5, {}, {}, Chunk(id, "", text)) for id, text in zip(ids, texts, strict=True)]
    started, source = time.monotonic(), f"the reranker {reranker.name}"
    judging = reranker.rerank("How is green tea made?", "en", pool, deadline=started + _MODEL_TIMEOUT_S)
    try:
        scores = await wait_within(judging, _MODEL_TIMEOUT_S)
    except TimeoutError:
        raise Unavailable(source, timeout_reason(_MODEL_TIMEOUT_S)) from None
    validate_scores(scores, len(pool), source)
    return (time.monotonic() - started) * 1000, scores[0] > scores[1]


def _reranker_advice(reason: str, settings: Settings) -> str:
    if "HTTP 401" in reason or "HTTP 403" in reason:
        return (
            "set RERANKER_API_KEY to a valid key of the server" if settings.reranker_api_key else "set RERANKER_API_KEY"
        )
    if "HTTP 404" in reason:
        return "correct the address in RERANKER; it must include the path"
    if "HTTP 429" in reason:
        return "wait, or check the quota of the key"
    if "pip install" in reason:
        return reason.partition(": ")[2]
    return "check RERANKER and that its server runs; until it answers, hits keep the fused order"


async def _check_rank_features(settings: Settings) -> CheckResult:
    """Check that the tenant's collections have the fields used for ranking, with a suitable type."""
    collections = await _tenant_collections(settings)
    if collections is None:
        return CheckResult("ranking", False, settings.rank_features, "see the check of the database above")
    useless = _unusable_features(
        rank_features.parse_rank_features(settings.rank_features), [one.fields for one in collections]
    )
    mend = (
        f"has no effect, because no collection has such a field of a suitable type: {', '.join(useless)}"
        if useless
        else ""
    )
    return CheckResult("ranking", True, settings.rank_features, mend)


async def _check_prompt_fields(settings: Settings) -> CheckResult:
    """Check that the tenant's collections have the fields that prompts show."""
    collections = await _tenant_collections(settings)
    if collections is None:
        return CheckResult("prompt fields", False, settings.prompt_fields, "see the check of the database above")
    fields: dict[str, set[str]] = {}
    for one in collections:
        fields.setdefault(one.name, set()).update(one.fields)
    # The fields of sources with documents of their own are not known here.
    elsewhere = {*settings.sources, *registry.names()}
    missing = prompt_fields.unknown_names(prompt_fields.parse_prompt_fields(settings.prompt_fields), fields, elsewhere)
    mend = (
        f"never shown, because no collection of {settings.tenant} has the field: {', '.join(missing)}"
        if missing
        else ""
    )
    return CheckResult("prompt fields", True, settings.prompt_fields, mend)


async def _tenant_collections(settings: Settings) -> Sequence[Collection] | None:
    """Return the tenant's collections; None if the database is unavailable."""
    from retrievers.postgres.catalogue.catalogue import Catalogue
    from retrievers.postgres.connections.database import Database

    try:
        with database_addresses(settings) as (owner, service):
            async with Database(owner, service, size=1) as database:
                return await Catalogue(database).collections(unrestricted_viewer(settings.tenant))
    except (RetrievalError, psycopg.Error):
        return None


def _unusable_features(features: Sequence[RankFeature], fields: Sequence[Mapping[str, Field]]) -> list[str]:
    """Return, as "KIND:FIELD", the features whose field no collection has with a suitable type.

    Args:
        fields: the fields of each collection.
    """
    return [
        f"{feature.kind}:{feature.field}"
        for feature in features
        if feature.field
        and not any(
            feature.field in one and one[feature.field].item in _RANKED_BY.get(feature.kind, (one[feature.field].item,))
            for one in fields
        )
    ]


def _check_disk(settings: Settings) -> CheckResult:
    if settings.database_url:
        return CheckResult("disk", True, "not checked: the database is not embedded")
    free = free_bytes(settings.home)
    found = f"{free / 2**30:.1f} GiB free at {settings.home.expanduser()}"
    enough = free >= LEAST_FREE_BYTES
    return CheckResult(
        "disk", enough, found, "" if enough else "free disk space, or set SIGNALBOX_HOME to another disk"
    )
