"""Record what produced a result: settings without secrets, prompt digests, versions and the machine."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agent.settings import Settings
from prompts import TemplateLibrary
from retrievers.postgres.connections.database import Database

_SECRET = re.compile(r"(?:^|_)(?:key|secret|password|token)s?$")
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")
_DATABASE_VERSIONS = """
    SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
_PACKAGES = ("signalbox-retrieval", "numpy", "onnxruntime", "psycopg", "ir_measures")


def public_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as JSON values, without keys and without the user part of URLs."""
    given = settings.model_dump(mode="json", exclude={"sources"})
    shown = _public(given)
    # A connection string may hold a password in several places, so it is never shown.
    named = {name: _public(one.model_dump(mode="json")) for name, one in settings.sources.items()}
    return {**shown, "sources": named, "database_url": "given" if settings.database_url else None}


def _public(given: dict[str, Any]) -> dict[str, Any]:
    return {name: _without_user(value) for name, value in given.items() if not _SECRET.search(name)}


def _without_user(value: Any) -> Any:
    return _USER_IN_URL.sub("", value) if isinstance(value, str) else value


def prompt_digests(templates: TemplateLibrary) -> dict[str, str]:
    """Return the digest of every prompt template, by name."""
    return {name: templates.load(name).digest for name in templates.names()}


def machine() -> dict[str, Any]:
    """Return what the speed depends on: processor, cores and GB of memory, without the machine's name."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
        processor = named or processor
    except OSError:
        pass  # not Linux
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


async def versions(database: Database) -> dict[str, str]:
    """Return versions of the program, main packages, Python and database; missing packages are left out."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    async with database.connection() as connection:
        cursor = await connection.execute(_DATABASE_VERSIONS)
        row = await cursor.fetchone()
    assert row is not None
    return {**found, "postgres": str(row[0]), "pgvector": str(row[1])}
