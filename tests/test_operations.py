"""The files that the service is run with, the deployment guide, and the backup that it describes."""

import configparser
import json
import re
import shlex
import subprocess
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
import yaml
from psycopg.conninfo import make_conninfo

from agent.serve.cli.program import app
from agent.service.factory import open_service
from agent.settings import Settings
from retrievers.ingest.documents import Document
from retrievers.postgres.server.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMMANDS: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
FROM_ENTRY_POINTS = {"eval"}


def parse(arguments: list[str]) -> None:
    """Read a command line as `signalbox` does; SystemExit or a usage error where it is none."""
    command = COMMANDS[arguments[0]]
    command.make_context(arguments[0], arguments[1:], resilient_parsing=False)


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, continued lines joined."""
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def of(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def settings_in(text: str) -> set[str]:
    return set(re.findall(r"SIGNALBOX_([A-Z_]+)\b", text))


def test_every_file_that_the_image_copies_is_there_and_not_ignored():
    copied = [name for rest in of("COPY") if not rest.startswith("--from=") for name in rest.split()[:-1]]
    kept = set(re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert set(copied) == kept
    assert [name for name in copied if not (ROOT / name).exists()] == []
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {*packages, project["project"]["readme"], "pyproject.toml", "constraints.txt", "LICENSE"}
    assert needed <= set(copied)


def test_the_image_runs_a_command_that_exists_as_somebody_without_rights_and_says_how_it_is():
    assert of("USER") == ["10001"]
    assert [yaml.safe_load(rest) for rest in of("ENTRYPOINT")] == [["signalbox"]]
    (command,) = (yaml.safe_load(rest) for rest in of("CMD"))
    parse(command)
    (health,) = of("HEALTHCHECK")
    python = yaml.safe_load(health.partition("CMD ")[2])
    compile(python[2], "healthcheck", "exec")
    port = command[command.index("--port") + 1]
    assert f":{port}/healthz" in python[2]
    assert of("EXPOSE") == [port]
    # The last stage is the image; what it copies from the other was made there.
    assert len(of("FROM")) == 2


def test_the_compose_file_names_what_there_is():
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = composed["services"]

    assert set(services) == {"database", "serve", "worker"}
    for name in ("serve", "worker"):
        one = services[name]
        assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
        assert set(one["depends_on"]) <= set(services)
        assert one["depends_on"]["database"]["condition"] == "service_healthy"
        address = one["environment"]["SIGNALBOX_DATABASE_URL"]
        assert "@database:5432/" in address
        assert address.endswith(services["database"]["environment"]["POSTGRES_DB"])
        # The service manager waits longer than requests at work may take.
        assert int(one["stop_grace_period"].rstrip("s")) > int(one["environment"]["SIGNALBOX_GRACE_S"])
    parse(services["worker"]["command"])
    assert {mount.partition(":")[0] for mount in services["database"]["volumes"]} == set(composed["volumes"])


def test_the_unit_starts_a_command_that_exists():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "signalbox.service").read_text(encoding="utf-8"))

    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "signalbox"
    parse(arguments)
    values = dict(pair.partition("=")[::2] for pair in shlex.split(unit["Service"]["Environment"]))
    assert int(unit["Service"]["TimeoutStopSec"]) > int(values["SIGNALBOX_GRACE_S"])
    documented = unit["Unit"]["Documentation"].removeprefix("file:///opt/signalbox/")
    assert (ROOT / documented).is_file()


@pytest.mark.parametrize(
    "path",
    ["deploy/Dockerfile", "deploy/compose.yaml", "deploy/kubernetes.yaml", "deploy/signalbox.service"],
)
def test_every_setting_of_a_file_exists(path: str):
    named = settings_in((ROOT / path).read_text(encoding="utf-8"))

    assert named
    assert {name for name in named if name.lower() not in Settings.model_fields} == set()


def first_cells(section: int) -> set[str]:
    """What stands in code marks in the first column of the guide's tables, in one section."""
    text = GUIDE.partition(f"## {section}. ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}


def test_every_setting_of_the_guide_exists():
    named = first_cells(2)

    assert len(named) > 8
    assert {name for name in named if name.lower() not in Settings.model_fields} == set()


def test_every_command_of_the_guide_exists():
    named = set(re.findall(r"(?:`|^    |&& |\" )signalbox ([a-z]+)", GUIDE, re.MULTILINE))

    assert len(named) > 8
    assert named - set(COMMANDS) - FROM_ENTRY_POINTS == set()


def sources(folder: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py")))


def test_every_metric_of_the_guide_is_measured():
    named = set(re.findall(r"\b(signalbox_[a-z_]+)\b", GUIDE)) - {"signalbox_app"}

    code = sources("agent")
    assert named
    assert {name for name in named if f'"{name}"' not in code} == set()


def exported() -> set[str]:
    """The names of all series that a process exports, by the names and kinds of its metrics."""
    code = sources("agent/observe")
    names = set(re.findall(r'"(signalbox_[a-z_]+)"', code))
    counters = set(re.findall(r'(?i:_?counters?)\(\s*"(signalbox_[a-z_]+)"', code))
    histograms = set(re.findall(r'duration\(\s*"(signalbox_[a-z_]+)"', code))
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return names - counters - histograms | {f"{name}_total" for name in counters} | parts


def test_the_alerts_and_the_dashboard_read_only_series_that_are_exported():
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]
    read = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]

    assert len(rules) > 5
    assert len(panels) > 10
    assert {name for text in read for name in re.findall(r"\bsignalbox_[a-z_]+\b", text)} - exported() == set()
    assert all(text.count("(") == text.count(")") for text in read)


def test_the_manifests_fit_the_image_and_each_other():
    resources = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    deployments = {one["metadata"]["name"]: one["spec"]["template"] for one in resources if one["kind"] == "Deployment"}
    (settings,) = [one["data"] for one in resources if one["kind"] == "ConfigMap"]
    (service,) = [one["spec"] for one in resources if one["kind"] == "Service"]

    assert deployments["signalbox"]["metadata"]["labels"] == service["selector"]
    for template in deployments.values():
        pod = template["spec"]
        (container,) = pod["containers"]
        parse(container.get("args") or json.loads(of("CMD")[-1]))
        assert str(pod["securityContext"]["runAsUser"]) == of("USER")[0]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert pod["terminationGracePeriodSeconds"] > int(settings["SIGNALBOX_GRACE_S"]) + 5
    (serve,) = deployments["signalbox"]["spec"]["containers"]
    assert [str(port["containerPort"]) for port in serve["ports"]] == of("EXPOSE")


# The backup, as the guide has it.


@pytest.fixture
def restored(server: EmbeddedServer) -> Iterator[str]:
    """An empty database."""
    name = f"restored_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield server.conninfo(database=name)
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


async def test_a_dump_restores_every_document_and_whoever_is_under_row_security_gets_none(
    server: EmbeddedServer, owner_url: str, service_url: str, restored: str, tmp_path: Path
):
    programs, dump = server._binaries(), tmp_path / "signalbox.dump"
    async with open_service(Settings(database_url=owner_url, service_url=service_url, timeout_s=60)) as service:
        await service.ingest([Document("a", f"d{n}", f"Title {n}", f"Penguin {n} walks.") for n in range(9)], "docs")

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [programs / program, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    done = run("pg_dump", "--format=custom", "-d", owner_url, "-f", str(dump))
    assert done.returncode == 0, done.stderr
    done = run("pg_restore", "--exit-on-error", "-d", restored, str(dump))
    assert done.returncode == 0, done.stderr

    again = Settings(
        database_url=restored,
        service_url=make_conninfo(restored, user="signalbox_app"),
        timeout_s=60,
        source_timeout_s=60,
    )
    async with open_service(again) as service:
        report = await service.check("docs")
        assert (report.documents, report.findings) == (9, ())
        found = await service.retrieve("penguin 7", collection="docs", top_k=1)
        assert [hit.document_id for hit in found.hits] == ["d7"]

    reader = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {reader} LOGIN IN ROLE pg_read_all_data".encode())
        refused = run("pg_dump", "--format=custom", "-d", make_conninfo(owner_url, user=reader), "-f", str(dump))
        connection.execute(f"DROP ROLE {reader}".encode())
    assert refused.returncode != 0
    assert "query would be affected by row-level security policy" in refused.stderr
