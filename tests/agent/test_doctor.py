"""What the doctor says of the model, and that it never shows a key."""

import json
import logging
from pathlib import Path

import pytest

from agent.observe import logs
from agent.options import rank_features
from agent.serve.cli.doctor import checks as doctor
from agent.serve.cli.doctor import source_checks as doctor_sources
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from retrievers.core.metadata import Field
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

KEY = "sk-very-secret-key-0123"


async def test_no_model_is_fine_and_says_what_one_would_bring():
    check = await doctor._check_model(Settings())
    assert check.ok
    assert check.found == "none: rules interpret the questions"
    assert "set LLM" in check.mend


async def test_a_model_that_answers_is_named():
    with ScriptedServer(models=["small"]) as server:
        check = await doctor._check_model(Settings(llm="openai/small", llm_base_url=server.base_url, llm_api_key=KEY))
    assert (check.ok, check.found) == (True, "openai/small: the server answers and lists this model")
    assert [request.path for request in server.requests] == ["/v1/models"]


@pytest.mark.parametrize(
    ("fault", "found", "mend"),
    [
        (Fault(status=401, body=json.dumps({"error": {"message": f"bad key {KEY}"}})), "HTTP 401", "LLM_API_KEY"),
        (Fault(status=429), "HTTP 429", "quota"),
        (Fault(status=503), "HTTP 503", "LLM_BASE_URL"),
        (Fault(reset=True), "the connection failed", "LLM_BASE_URL"),
    ],
)
async def test_a_model_that_does_not_answer_comes_with_the_way_to_mend_it(fault: Fault, found: str, mend: str):
    with ScriptedServer(faults=[fault] * 9) as server:
        check = await doctor._check_model(Settings(llm="openai/small", llm_base_url=server.base_url, llm_api_key=KEY))
    assert not check.ok
    assert found in check.found
    assert mend in check.mend
    assert KEY not in str(check)


async def test_a_recording_says_how_much_it_holds(tmp_path: Path):
    file = tmp_path / "r.jsonl"
    file.write_text('{"stage": "intent", "key": {"question": "q"}, "text": "x"}\n')
    assert (await doctor._check_model(Settings(llm=f"replay:{file}"))).found == f"the recording {file}, 1 replies"
    check = await doctor._check_model(Settings(llm="replay:/nowhere"))
    assert (check.ok, "cannot be read" in check.found) == (False, True)


def test_settings_are_shown_without_keys_and_passwords():
    settings = Settings(llm="openai/m", llm_api_key=KEY, llm_base_url="http://me:pw@host/v1", embedder_api_key=KEY)
    shown = doctor._check_settings(settings).found
    assert "LLM=openai/m" in shown
    assert "LLM_API_KEY=***" in shown
    assert "LLM_BASE_URL=http://***@host/v1" in shown
    assert KEY not in shown + repr(settings)


async def test_keys_in_addresses_of_the_settings_are_shown_by_nothing():
    settings = Settings.model_validate({
        "embedders": "openai/a=http://me:secret-pw@127.0.0.1:9/v1, openai/b=http://127.0.0.1:9/v1?api_key=secret-key",
        "sync": {"news": {"source": "mysql://u:secret-%40@h/x?token=secret-tok", "table": "t", "collection": "c",
                          "every": "1h"}},
        "sources": {"far": {"kind": "web", "provider": "searxng", "description": "x",
                            "base_url": "http://127.0.0.1:9/?auth_token=secret-web"}},
    })  # fmt: skip
    assert set(settings.secrets) == {
        "secret-pw", "secret-key", "secret-%40", "secret-@", "secret-tok", "secret-web",
    }  # fmt: skip
    assert "EMBEDDERS=openai/a=http://***@127.0.0.1:9/v1" in doctor._check_settings(settings).found
    shown = [doctor._check_settings(settings).found, repr(settings), repr(await doctor_sources.check_sources(settings))]
    for formatter in (logs.JsonFormatter(logs.secrets_of(settings)), logs.TextFormatter(logs.secrets_of(settings))):
        for text in (*settings.secrets, settings.embedders, settings.sync["news"].source):
            shown.append(formatter.format(logging.LogRecord("n", logging.WARNING, "f.py", 1, "said %s", (text,), None)))
    assert "secret-" not in " ".join(shown)


async def test_a_misspelt_variable_is_named_with_what_was_meant(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIGNALBOX_DATABSE_URL", "postgresql://nobody@127.0.0.1:1/x")
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/x")
    settings = (await doctor.run_checks())[0]
    assert settings.ok
    what = "the environment variable SIGNALBOX_DATABSE_URL is not a setting (did you mean SIGNALBOX_DATABASE_URL?)"
    assert settings.mend == what


async def test_a_local_folder_is_read_and_what_in_it_cannot_be_is_named(tmp_path: Path):
    (tmp_path / "tram.md").write_text("# Tram\n\nLine 7 stops at the north gate.\n")
    check = await doctor_sources._check_local(Settings(local=tmp_path))
    assert (check.ok, check.found) == (True, f"{tmp_path}: 1 document, 1 passage")
    (tmp_path / "bad.jsonl").write_text('{"id": "a"\n')
    check = await doctor_sources._check_local(Settings(local=tmp_path))
    assert not check.ok
    assert f"1 document, 1 passage; not searched: {tmp_path / 'bad.jsonl'}" in check.found


async def test_a_local_folder_that_is_not_there_is_said(tmp_path: Path):
    check = await doctor_sources._check_local(Settings(local=tmp_path / "gone"))
    assert not check.ok
    assert f'"{tmp_path / "gone"}" does not exist' in check.found
    assert "LOCAL" in check.mend


def test_rank_features_without_a_field_of_their_type_are_named():
    fields = {
        "stars": Field("stars", "number", "number"),
        "day": Field("day", "date", "date"),
        "team": Field("team", "list", "string"),
    }
    features = rank_features.parse_rank_features("prior:day=1,recency:day/30=1,tags:team=1,feedback=1")
    assert doctor._unusable_features(features, [{}, fields]) == ["prior:day"]
    assert doctor._unusable_features(rank_features.parse_rank_features("prior:stars=1,tags:tems=1"), [fields]) == [
        "tags:tems"
    ]


async def test_fields_of_prompts_that_no_document_has_are_named(database: Database, owner_url: str, service_url: str):
    metadata = {"team": "crew", "author": {"name": "Ann"}}
    for collection, readers in (("notes", ()), ("secret", ("user:7",))):
        document = Document("a", "a", "A", "Oil.", metadata=metadata, readers=readers)
        await ingest(database, HashEmbedder(), "default", collection, [document])
    given = "notes=author.nome,team; secret=team,x; nothing=team; web=site"
    settings = Settings(database_url=owner_url, service_url=service_url, prompt_fields=given)
    check = await doctor._check_prompt_fields(settings)
    assert (check.ok, check.mend) == (
        True, "never shown, because no collection of default has the field: notes=author.nome, secret=x, nothing"
    )  # fmt: skip
    for given in ("team,author,author.name", "notes=;secret=team", "tema;notes=;secret="):
        fine = await doctor._check_prompt_fields(settings.model_copy(update={"prompt_fields": given}))
        assert fine.mend == "", given
    missing = await doctor._check_prompt_fields(settings.model_copy(update={"prompt_fields": "tema"}))
    assert missing.mend.endswith("has the field: tema")
