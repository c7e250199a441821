"""The connections of LangChain's PostgreSQL stores, for the adapters beside this file."""

from collections.abc import Mapping

from langchain_postgres import PGEngine
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine


def engine_of(database: Mapping[str, str], connections: int) -> PGEngine:
    """Return an engine with a pool of `connections` connections."""
    url = URL.create(
        "postgresql+asyncpg",
        username=database.get("user"),
        password=database.get("password"),
        database=database["dbname"],
        query={key: database[key] for key in ("host", "port") if key in database},
    )
    return PGEngine.from_engine(create_async_engine(url, pool_size=connections, max_overflow=0))
