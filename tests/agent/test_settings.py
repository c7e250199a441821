import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.errors import BadSetting
from agent.settings import SETTINGS_FILE, Settings, load_settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch):
    import os

    for key in list(os.environ):
        if key.startswith("SIGNALBOX_"):
            monkeypatch.delenv(key)


def problem(folder: Path, **given: object) -> BadSetting:
    with pytest.raises(BadSetting) as caught:
        load_settings(given, folder=folder)
    assert "\n" not in str(caught.value)
    return caught.value


def test_no_setting_is_needed(tmp_path: Path):
    assert load_settings(folder=tmp_path) == Settings()


def test_what_is_given_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / SETTINGS_FILE).write_text('timeout_s = 1\nPOOL_SIZE = 2\ntenant = "file"\n')
    monkeypatch.setenv("SIGNALBOX_POOL_SIZE", "3")
    monkeypatch.setenv("SIGNALBOX_TENANT", "environment")

    found = load_settings({"TENANT": "given"}, folder=tmp_path)

    assert (found.timeout_s, found.pool_size, found.tenant) == (1.0, 3, "given")


def test_the_file_of_the_working_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text('tenant = "here"\n')
    monkeypatch.chdir(tmp_path)
    assert load_settings().tenant == "here"


@pytest.mark.parametrize("key", ["home", "local"])
def test_an_empty_path_is_its_default_and_not_the_working_folder(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"SIGNALBOX_{key.upper()}", "")
    assert load_settings(folder=tmp_path) == Settings()


def test_a_rule_of_a_setting_speaks_in_plain_words(tmp_path: Path):
    assert str(problem(tmp_path, reranker="nope")).startswith(
        'setting RERANKER (the command line): there is no reranker "nope"; give none, hybrid'
    )


def test_weights_are_of_sources_that_there_are(tmp_path: Path):
    assert Settings().fusion_weights == "fulltext=0.05"
    assert load_settings({"fusion_weights": "fulltext=0.3, web=0.2"}).fusion_weights == "fulltext=0.3, web=0.2"
    assert 'there is no source "fultext"; there are: "cloud", "fulltext"' in str(
        problem(tmp_path, fusion_weights="fultext=0.3")
    )
    assert "must be below 1" in str(problem(tmp_path, fusion_weights="fulltext=0.3,vector=0.7"))


def test_variables_of_another_version_are_ignored_but_unknown_keys_of_the_file_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SIGNALBOX_FROM_THE_FUTURE", "1")
    assert load_settings(folder=tmp_path) == Settings()
    (tmp_path / SETTINGS_FILE).write_text("time_out = 3\n")
    error = problem(tmp_path)
    assert f'there is no setting "TIME_OUT" ({tmp_path / SETTINGS_FILE})' in str(error)
    assert '"TIMEOUT_S"' in str(error)


def test_a_bad_value_is_named_with_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text("pool_size = 0\n")
    assert str(problem(tmp_path)).startswith(
        f"setting POOL_SIZE ({tmp_path / SETTINGS_FILE}): input should be greater than"
    )
    (tmp_path / SETTINGS_FILE).unlink()
    monkeypatch.setenv("SIGNALBOX_POOL_SIZE", "many")
    assert str(problem(tmp_path)).startswith("setting POOL_SIZE (the environment): input should be a valid integer")
    monkeypatch.delenv("SIGNALBOX_POOL_SIZE")
    assert str(problem(tmp_path, pool_size=1000)).startswith(
        "setting POOL_SIZE (the command line): input should be less"
    )


# TOML's types, each with what else it may be read as; and what Python's own reader stumbles over.
WRONG = (
    "5", "-1.5", "true", '"\\u0000"', "[[]]", "[5]", "{a = 1}", "1979-05-27", "10:00:00", "nan", "inf",
    "0x" + "F" * 6_000, "9" * 5_000, "[" * 300 + "]" * 300,
)  # fmt: skip
FITS = {"int": {"5"}, "float": {"5"}, "bool": {"true"}, "tuple": {'"\\u0000"'}}


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_value_of_another_type_in_the_file_is_named_with_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    types = re.findall(r"\w+", str(Settings.model_fields[name].annotation))
    path = tmp_path / SETTINGS_FILE
    for value in set(WRONG) - set().union(*(FITS.get(one, ()) for one in types)):
        path.write_text(f"{name.upper()} = {value}\n")
        error = str(problem(tmp_path))
        named = f"setting {name}.a ({path}): "  # a table of a table
        assert error.startswith((f"setting {name.upper()} ({path}): ", f"{path} cannot be read: ", named)), value
        # What overrides it does not excuse it.
        with monkeypatch.context() as patch:
            patch.setenv(f"SIGNALBOX_{name.upper()}", "")
            assert str(problem(tmp_path)) == error


@pytest.mark.parametrize("table", ["[signalbox]", "[home]", "[[home]]", "[web.home]"])
def test_a_table_is_no_setting(table: str, tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text(f'{table}\nhome = "/tmp"\n')
    assert str(tmp_path / SETTINGS_FILE) in str(problem(tmp_path))


def test_a_setting_that_the_file_holds_twice_is_an_error(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text("depth = 20\nDEPTH = 30\n")
    assert (
        str(problem(tmp_path)) == f'the setting "DEPTH" occurs twice ({tmp_path / SETTINGS_FILE}); remove one of them'
    )


def test_a_folder_in_the_place_of_the_file_is_not_passed_over(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).mkdir()
    assert f"{tmp_path / SETTINGS_FILE} cannot be read: " in str(problem(tmp_path))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("timeout_s", 0), ("timeout_s", -1), ("timeout_s", "soon"), ("timeout_s", float("nan")), ("timeout_s", 121),
        ("reranker", "best"), ("fusion", "mean"), ("lexical_weight", 1.5), ("lexical_weight", float("nan")),
        ("tenant", ""), ("tenant", "t" * 129), ("home", None), ("pool_size", 2.5),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused_by_name_and_not_echoed(tmp_path: Path, key: str, value: object):
    error = problem(tmp_path, **{key: value})
    assert error.where == key
    assert f"setting {key.upper()} (the command line): " in str(error)
    assert "ttt" not in str(error)


@pytest.mark.parametrize("content", [b"tenant = ", b"\xff\xfe", b"= 3"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes):
    (tmp_path / SETTINGS_FILE).write_bytes(content)
    assert f"{tmp_path / SETTINGS_FILE} cannot be read: " in str(problem(tmp_path))


KEYS = [name for name in Settings.model_fields if name.endswith("_key")]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_no_header_can_hold_is_refused_and_not_repeated(name: str, tmp_path: Path):
    for key in ("schlüssel-0123", "key-0123\nx", "key-0123\0"):
        error = problem(tmp_path, **{name: key})
        assert (error.where, str(error)) == (
            name, f"setting {name.upper()} (the command line): it contains a character that no key has",
        )  # fmt: skip
        with pytest.raises(ValidationError) as raised:
            Settings(**{name: key})
        assert "0123" not in str(raised.value)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_read_from_a_file_may_end_in_a_line_break_and_an_empty_one_is_none(name: str, tmp_path: Path):
    assert getattr(load_settings({name: " key-0123\n"}, folder=tmp_path), name) == "key-0123"
    assert getattr(load_settings({name: " \n"}, folder=tmp_path), name) is None


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().tenant = "other"


def test_transformers_are_a_list_or_names_between_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text('transforms = ["hyde", "expand"]\n')
    assert load_settings(folder=tmp_path).transforms == ("hyde", "expand")
    monkeypatch.setenv("SIGNALBOX_TRANSFORMS", " compress, rewrite ,")
    assert load_settings(folder=tmp_path).transforms == ("compress", "rewrite")
    monkeypatch.setenv("SIGNALBOX_TRANSFORMS", "")
    assert load_settings(folder=tmp_path).transforms == ()
    error = problem(tmp_path, transforms="compress,guess")
    assert "'compress', 'rewrite', 'translate', 'expand', 'decompose', 'stepback' or 'hyde'" in str(error)


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({}, False),
        ({"embedder": "onnx:/models/e5", "reranker": "hybrid"}, False),
        ({"embedder": "openai/any"}, True),
        ({"llm": "openai/any"}, True),
        ({"reranker": "https://rerank.test"}, True),
        ({"web_provider": "brave"}, True),
        ({"cloud": "openai:vs_1"}, True),
    ],
)
def test_searches_that_wait_for_services_elsewhere_are_told_from_those_that_do_not(given: dict[str, str], waits: bool):
    assert Settings(**given).uses_external_services is waits
