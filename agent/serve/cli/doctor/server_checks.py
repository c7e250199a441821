"""The doctor's checks for `signalbox serve`: port, API keys, log lines and spans."""

import http.client
import importlib.util
import json
import socket

import psycopg

from agent.serve.cli.doctor.check_result import CheckResult
from agent.service.factory import database_addresses
from agent.settings import Settings, is_span_export_configured
from retrievers.core.errors import RetrievalError
from retrievers.core.optional_dependencies import install_command
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.connections.database import Database

HOST, PORT = "127.0.0.1", 8000
"""Default address of `signalbox serve`."""
_TIMEOUT_S = 2.0


def check_port(host: str = HOST, port: int = PORT) -> CheckResult:
    """Check that the address is free, or that the service already answers there."""
    where = f"{host}:{port}"
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            if _serves(host, port):
                return CheckResult("serve", True, f"a service answers at {where}")
            mend = "choose another port with `signalbox serve --port N`, or stop the program that uses this one"
            return CheckResult("serve", True, f"{where} is taken: {error.strerror}", mend)
    return CheckResult("serve", True, f"{where} is free")


def _serves(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status == 200 and json.loads(answer.read(1000)) == {"status": "ok"}
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


async def check_access(settings: Settings) -> CheckResult:
    """Check who may call the service, and that a key exists if one is needed."""
    try:
        with database_addresses(settings) as (owner, service):
            async with Database(owner, service, size=1) as database:
                stored = await ApiKeyStore(database).list_keys()
    except (RetrievalError, psycopg.Error):
        return CheckResult("access", False, f"AUTH={settings.auth or 'unset'}", "see the check of the database above")
    live = sum(key.state == "live" for key in stored)
    keys = f"{live} key{'s' if live != 1 else ''} in use"
    make = "create a key with `signalbox keys create --tenant T`"
    if settings.auth == "keys":
        return CheckResult("access", bool(live), f"AUTH=keys: every caller needs one; {keys}", "" if live else make)
    if settings.auth == "off":
        return CheckResult(
            "access", True, "AUTH=off: every program on this machine may call without a key; other machines may not"
        )
    found = f"AUTH is unset: callers need a key unless the service listens on loopback only; {keys}"
    return CheckResult("access", True, found, "" if live else f"to allow calls from other machines, {make}")


def check_logs(settings: Settings) -> CheckResult:
    """Report where log lines and spans go."""
    found = f"{settings.log_format} lines to stderr, from level {settings.log_level}"
    if not is_span_export_configured():
        return CheckResult("logs", True, f"{found}; no spans")
    needed = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if all(map(_is_installed, needed)):
        return CheckResult("logs", True, f"{found}; spans to OTEL_EXPORTER_OTLP_ENDPOINT")
    return CheckResult(
        "logs", False, f"{found}; spans are enabled but not sent: packages are missing", install_command("otel")
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing too
        return False
