"""The doctor's checks of the sources: LOCAL, WEB_PROVIDER, CLOUD and each `[sources.NAME]`."""

import asyncio

import psycopg

from agent.options.named_sources import NamedSource
from agent.serve.cli.doctor.check_result import CheckResult
from agent.service.factory import database_addresses
from agent.settings import Settings
from retrievers import configured_sources
from retrievers.core.credentials import mask_credentials
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable, join_names
from retrievers.core.types import Closeable, Query, Retriever, Scope
from retrievers.local import Local
from retrievers.registry import Resources

_CLOUD_MENDS = {
    "CLOUD": "correct the setting",
    "sources.": "correct the setting",
    "pip install": "install the package",
    "limit is reached": "wait, or check the quota of the key",
}
"""Remedy by a text that the error message contains."""
_CLOUD_SILENT = "check CLOUD_BASE_URL and that its server runs; until it answers, searches skip this source"
_SILENT = "check its address and that its server runs; until it answers, searches skip this source"
_WEB_SILENT = "check its address and that it runs; until it answers, searches skip the web"


async def check_sources(settings: Settings) -> list[CheckResult]:
    """Check every configured source except the database."""
    return [
        *([await _check_local(settings)] if settings.local else []),
        *([await _check_web(settings)] if settings.web_provider else []),
        *([await _check_cloud(settings)] if settings.cloud else []),
        *[await _check_named(name, one, settings) for name, one in settings.sources.items()],
    ]


async def _check_named(name: str, one: NamedSource, settings: Settings) -> CheckResult:
    """Check a named source. A search that may cost money is not made."""
    title = f"source {name}"
    if one.kind == "collections":
        return await _check_collections(title, one, settings)
    resources = Resources(None, None, None, {})
    try:
        source = configured_sources.build(one.to_definition(name), resources, {}, timeout_s=settings.source_timeout_s)
    except BadRequest as error:
        return CheckResult(title, False, str(error), "correct it in signalbox.toml")
    try:
        if isinstance(source, Local):
            return await _check_folder(title, source, str(one.path))
        shown, timeout_s = (
            f"{one.kind}, {mask_credentials(str(one.provider))}",
            one.timeout_s or settings.source_timeout_s,
        )
        if one.kind == "web" and (one.api_key or one.cost):
            return CheckResult(title, True, f"{shown}; no test search was made, because it may cost money")
        return await _check_search(title, source, shown, timeout_s, settings)
    finally:
        if isinstance(source, Closeable):
            await source.aclose()


async def _check_search(title: str, source: Retriever, shown: str, timeout_s: float, settings: Settings) -> CheckResult:
    """Check that an external source answers a search."""
    try:
        async with asyncio.timeout(timeout_s):
            hits = await source.search(Query("test", "en", Scope(settings.tenant, ()), limit=1))
    except TimeoutError:
        return CheckResult(title, False, f"{shown}: no answer within {timeout_s:g} s", _SILENT)
    except BadRequest as error:
        return CheckResult(title, False, str(error), "correct it in signalbox.toml")
    except Unavailable as error:
        mend = next((mend for sign, mend in _CLOUD_MENDS.items() if sign in error.reason), _SILENT)
        return CheckResult(title, False, f"{shown}: {error.reason}", mend)
    return CheckResult(title, True, f"{shown} answered a test search with {'a hit' if hits else 'no hit'}")


async def _check_collections(title: str, one: NamedSource, settings: Settings) -> CheckResult:
    """Check that the settings' tenant has every collection of a group."""
    from retrievers.postgres.catalogue.catalogue import Catalogue
    from retrievers.postgres.connections.database import Database

    shown = f"collections {', '.join(one.collections)}"
    try:
        with database_addresses(settings) as (owner, service):
            async with Database(owner, service, size=1) as database:
                known = {found.name for found in await Catalogue(database).collections(settings.tenant)}
    except (RetrievalError, psycopg.Error):
        return CheckResult(title, False, shown, "see the check of the database above")
    missing = [name for name in one.collections if name not in known]
    if not missing:
        return CheckResult(title, True, shown)
    found = f'{shown}; the tenant "{settings.tenant}" has no collection {join_names(missing)}'
    return CheckResult(title, False, found, "ingest the collection, or correct `collections` in signalbox.toml")


async def _check_folder(
    title: str, source: Local, shown: str, mend: str = "correct it in signalbox.toml"
) -> CheckResult:
    """Check that a folder can be read, and report the files that cannot. No text is embedded."""
    try:
        await source.ready(vectors=False)
        held, failed = await source.collection(), source.failed
    except RetrievalError as error:
        return CheckResult(title, False, str(error), mend)
    found = f"{shown}: {_count_text(held.documents, 'document')}, {_count_text(held.chunks, 'passage')}"
    if not failed:
        return CheckResult(title, True, found)
    more = f", and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    wrong = f"{found}; not searched: {failed[0].where}: {failed[0].reason}{more}"
    return CheckResult(title, False, wrong, "correct the file")


async def _check_local(settings: Settings) -> CheckResult:
    """Check the folder of LOCAL; see `_check_folder`."""
    from retrievers import local

    mend = "correct LOCAL, or create the folder"
    try:
        source = local.build(Resources(None, None, None, settings.model_dump()))
    except RetrievalError as error:
        return CheckResult("local", False, str(error), mend)
    assert source is not None  # it is set
    try:
        return await _check_folder("local", source, str(settings.local), mend)
    finally:
        await source.aclose()


def _count_text(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


async def _check_web(settings: Settings) -> CheckResult:
    """Check the web source. A search is made only if the provider needs no key, because other searches cost money."""
    from retrievers import web

    name = "web search"
    try:
        source = web.build(Resources(None, None, None, settings.model_dump()))
    except RetrievalError as error:
        return CheckResult(name, False, str(error), "correct WEB_PROVIDER, WEB_API_KEY or WEB_BASE_URL")
    if source is None:
        return CheckResult(name, True, "none")
    shown = f"{source.api.name}, {'WEB_API_KEY is set' if settings.web_api_key else 'no key'}"
    mend = _WEB_SILENT
    try:
        if source.provider.needs_key:
            return CheckResult(name, True, f"{shown}; no test search was made, because it may cost money")
        async with asyncio.timeout(settings.source_timeout_s):
            found = await source.search(Query("weather", "en", Scope(settings.tenant, ())))
    except TimeoutError:
        return CheckResult(name, False, f"{shown}: no answer within {settings.source_timeout_s:g} s", mend)
    except RetrievalError as error:
        return CheckResult(name, False, str(error), mend)
    finally:
        await source.aclose()
    return CheckResult(name, True, f"{shown}; a test search found {len(found)} pages")


async def _check_cloud(settings: Settings) -> CheckResult:
    """Check that the knowledge base of the setting CLOUD answers a test search; the setting must not be empty."""
    from retrievers.cloud import build

    shown = mask_credentials(settings.cloud or "")
    try:
        cloud = build(Resources(None, None, None, settings.model_dump()))
        assert cloud is not None  # it is set
        try:
            hits = await cloud.search(Query("test", "en", Scope(settings.tenant, ()), limit=1))
        finally:
            await cloud.aclose()
    except BadRequest as error:
        return CheckResult("cloud", False, str(error), "correct CLOUD, CLOUD_API_KEY or CLOUD_BASE_URL")
    except Unavailable as error:
        mend = next((mend for sign, mend in _CLOUD_MENDS.items() if sign in error.reason), _CLOUD_SILENT)
        return CheckResult("cloud", False, f"{shown}: {error.reason}", mend)
    return CheckResult("cloud", True, f"{shown} answered a test search with {'a hit' if hits else 'no hit'}")
