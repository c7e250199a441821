"""What the README and docs/ say, compared with the code: settings, commands, links, snippets, codes, endpoints."""

import ast
import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import pytest
import typer.main
import yaml
from pydantic_core import PydanticUndefined

from agent import types
from agent.serve.cli.program import app
from agent.settings import schema as settings
from agent.settings.template import SETTING_GROUPS
from evals.cli import app as eval_app
from evals.demo import NEXT, demo
from retrievers.core.filters import GROUPS, Operator

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TEXTS = [ROOT / "README.md", *PAGES]
LONGEST_README = 150
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    """Fenced blocks of these languages, on all pages."""
    found = [Block(page, language, text) for page in TEXTS for language, text in _FENCE.findall(_text(page))]
    return [block for block in found if block.language in languages]


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    """The text of a page without fenced blocks."""
    return _FENCE.sub("", _text(page))


def _section(page: str, heading: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    _, _, rest = _text(DOCS / page).partition(f"\n## {heading}\n")
    assert rest, f"{page} has no section {heading}"
    return rest.partition("\n## ")[0]


def _rows(text: str) -> list[list[str]]:
    """The cells of all rows of the tables, without heads."""
    rows = [line.split(" | ") for line in _ROW.findall(text)]
    return [row for row in rows if row[0].startswith("`")]


def _names(cell: str) -> list[str]:
    return [span.strip("`") for span in _CODE_SPAN.findall(cell)]


def test_the_readme_is_short_and_every_page_begins_with_what_its_reader_can_do():
    assert len(_text(ROOT / "README.md").splitlines()) < LONGEST_README
    assert len(PAGES) >= 15
    begins = {page.name: _text(page).splitlines()[2][:16] for page in PAGES}
    assert set(begins.values()) == {"After this page "}, begins


def test_every_page_has_a_place_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """Reads the tags of mkdocs as text."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)

    def leaves(node: Any) -> Iterator[str]:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from leaves(value)
        if isinstance(node, str):
            yield node

    assert sorted(leaves(config["nav"])) == [page.name for page in PAGES]


# Links


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#{1,6} (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> list[str]:
    broken = []
    for target in _LINK.findall(_CODE_SPAN.sub("", _prose(page))):
        path, _, anchor = target.partition("#")
        where = (page.parent / path).resolve() if path else page
        if not where.is_file() or (anchor and anchor not in _anchors(where)):
            broken.append(f"{page.name}: {target}")
    return broken


def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading():
    assert [broken for page in TEXTS for broken in _broken_links(page)] == []
    assert sum(len(_LINK.findall(_prose(page))) for page in TEXTS) > 50


def test_a_broken_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# One head\n\n[a](#one-head) [b](#two) [c](gone.md) [d](page.md#one-head)\n", encoding="utf-8")
    assert _broken_links(page) == ["page.md: #two", "page.md: gone.md"]


# Commands


def _command_line() -> click.Command:
    root = typer.main.get_command(app)
    added = typer.Typer()
    added.add_typer(eval_app, name="eval")
    added.command("demo")(demo)
    root.commands |= typer.main.get_command(added).commands  # type: ignore[attr-defined]
    return root


def _wrong(line: str, root: click.Command) -> str | None:
    """What is wrong with a command of a page; None if it could run."""
    words = [word.strip() for word in shlex.split(line, comments=True)[1:]]
    command, path = root, "signalbox"
    while words and words[0] in getattr(command, "commands", {}):
        path = f"{path} {words[0]}"
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    if getattr(command, "commands", None) and words and not words[0].startswith("-"):
        return f"{path}: there is no command {words[0]}"
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    unknown = [word.partition("=")[0] for word in words if re.match(r"--\w", word)]
    unknown = [word for word in unknown if word not in options and word != "--help"]
    return f"{path} has no {unknown}" if unknown else None


def _commands(page: Path) -> list[str]:
    """Every `signalbox ...` of a page's blocks and code spans; continued lines are joined."""
    text = _text(page).replace("\\\n", " ")
    shown = [
        line for language, block in _FENCE.findall(text) if language in ("bash", "text") for line in block.split("\n")
    ]
    shown += [line for line in text.split("\n") if line.startswith("    ")]
    shown += [span.strip("`") for span in _CODE_SPAN.findall(_FENCE.sub("", text))]
    lines = [line.strip().removeprefix("$ ").rpartition(" | ")[2].removeprefix(".venv/bin/") for line in shown]
    return [line for line in lines if re.match(r"signalbox [a-z]", line)]


def test_every_command_of_a_page_exists_with_its_options():
    root = _command_line()
    commands = [(page.name, line) for page in TEXTS for line in _commands(page)]
    assert [(name, line, wrong) for name, line in commands if (wrong := _wrong(line, root))] == []
    assert len(commands) > 80


def test_every_command_that_the_demo_names_exists_with_its_options():
    root = _command_line()
    lines = [
        line.strip() for line in NEXT.format(signalbox="signalbox").splitlines() if line.startswith("  signalbox ")
    ]
    assert len(lines) >= 6
    assert [(line, wrong) for line in lines if (wrong := _wrong(line, root))] == []


def test_a_command_or_option_that_does_not_exist_is_found():
    root = _command_line()
    assert _wrong("signalbox retrieve x --top-k 3 --filter '{}'  # a comment --nothing", root) is None
    assert _wrong("signalbox keys forget ID", root) == "signalbox keys: there is no command forget"
    assert _wrong("signalbox sync docs/ --dry", root) == "signalbox sync has no ['--dry']"


def test_the_tour_lists_every_command():
    root = _command_line()
    listed = {name.split()[1] for row in _rows(_section("tour.md", "All commands")) for name in _names(row[0])}
    assert listed == set(root.commands)  # type: ignore[attr-defined]


# Snippets


@pytest.mark.parametrize("language", ["json", "toml", "python"])
def test_every_snippet_parses(language: str):
    parse = {
        "json": json.loads,
        "toml": tomllib.loads,
        "python": lambda text: compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT),
    }[language]
    snippets = blocks(language)
    assert snippets
    for page, _, text in snippets:
        try:
            parse(text)
        except (ValueError, SyntaxError) as error:
            pytest.fail(f"{page.name}: {error}: {text[:80]}")


def test_the_settings_of_every_file_shown_are_settings():
    for page, _, text in blocks("toml"):
        unknown = {key.lower() for key in tomllib.loads(text)} - settings.Settings.model_fields.keys()
        assert not unknown, (page.name, unknown)


def _defined(module: str) -> set[str]:
    """The names at the top of a module of the tree, which is not imported."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {one.name for one in node.names}
    return names


def test_python_snippets_import_what_exists():
    imported = set()
    for block in blocks("python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("agent", "retrievers")):
                imported |= {(node.module, name.name) for name in node.names}
            elif isinstance(node, ast.Import):
                assert [name.name for name in node.names if not _defined(name.name)] == []
    assert [f"{module}.{name}" for module, name in sorted(imported) if name not in _defined(module)] == []
    assert ("agent", "open_service") in imported


# Settings


def _shown(default: object) -> str:
    """A default as the table says it."""
    if default is None:
        return "unset"
    if default is PydanticUndefined or default in ("", (), {}):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:g}" if default < 10_000 else str(default)
    return f"`{default}`"


def test_the_settings_page_has_every_setting_with_its_default_and_no_other():
    # The module once more: in the one that tests share, requests have more time than by default.
    spec = spec_from_file_location("settings_as_shipped", settings.__file__)
    assert spec is not None
    assert spec.loader is not None
    shipped = module_from_spec(spec)
    spec.loader.exec_module(shipped)
    rows = {_names(row[0])[0]: row[1] for row in _rows(_text(DOCS / "settings.md"))}
    assert rows == {name.upper(): _shown(field.default) for name, field in shipped.Settings.model_fields.items()}


def test_the_settings_page_has_the_groups_of_the_settings_file():
    named = {group: tuple(_names(row[0])[0].lower() for row in _rows(_section("settings.md", group)))
             for group in SETTING_GROUPS}  # fmt: skip
    assert named == SETTING_GROUPS


def test_every_setting_that_a_page_names_exists():
    fields = {name.upper() for name in settings.Settings.model_fields}
    named = set()
    for page in TEXTS:
        for span in _CODE_SPAN.findall(_text(page)):
            named |= set(re.findall(r"^`(?:SIGNALBOX_)?([A-Z][A-Z_]{2,})=", span))
    assert named
    assert named <= fields | {"KEY", "NAME", "COLLECTION", "FIELD"}, named - fields


# Codes and problems


def _nodes(folder: Path, *words: str) -> Iterator[ast.AST]:
    """The syntax of the modules below a folder that hold one of the words."""
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "testing.py" and any(word in text for word in words):
            yield from ast.walk(ast.parse(text))


def _degraded_codes() -> tuple[set[str], set[str]]:
    """Codes of `degraded` in the code, and the ends of codes that begin with a name."""
    ends = "_unavailable", "_partial", "_skipped", "_dropped", "_cut"
    whole, named = set(), set()
    for node in _nodes(ROOT / "agent", *ends, ".with_unavailable("):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"[a-z]+(_[a-z]+)+", node.value) and node.value.endswith(ends):
                whole.add(node.value)
        elif isinstance(node, ast.JoinedStr) and len(node.values) == 2:
            end = node.values[1]
            if isinstance(end, ast.Constant) and end.value in ends:
                named.add(str(end.value))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "with_unavailable":
            whole |= {f"{one.value}_unavailable" for one in node.args if isinstance(one, ast.Constant)}
    return whole, named


def test_every_degraded_code_of_the_code_is_on_the_page_and_the_other_way_round():
    listed = {name for row in _rows(_section("troubleshooting.md", "Degraded codes")) for name in _names(row[0])}
    whole, named = _degraded_codes()
    patterns = {name for name in listed if name[0].isupper()}
    assert {name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for name in patterns} == named
    missing = get_args(types.Missing.model_fields["kind"].annotation)
    whole |= {f"{kind}_unavailable" for kind in missing if kind != "choice"}
    others = {"no_model", "routing_failed", "rerank_not_comparable", "all_below_min_score"}
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "agent").rglob("*.py"))
    assert [name for name in others if f'"{name}"' not in code] == []
    assert listed - patterns == whole | others


def test_every_problem_type_of_the_code_is_on_the_page_and_the_other_way_round():
    rows = _rows(_section("troubleshooting.md", "Problem types"))
    listed = {(_names(row[0])[0], int(row[1])) for row in rows}
    raised = set()
    for node in _nodes(ROOT / "agent" / "serve", "Problem(", "unavailable_problem("):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        values = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
        # unavailable_problem(...) makes the problem "unavailable" unless it is given another kind.
        kinds = [one.value.value for one in node.keywords if one.arg == "kind" and isinstance(one.value, ast.Constant)]
        if name == "Problem" and len(values) == 2:
            raised.add((values[1], values[0]))
        elif name == "unavailable_problem":
            raised |= {(kind, 503) for kind in kinds or ["unavailable"]}
    assert listed == raised


# Requests, endpoints, filters


def test_the_request_table_has_every_option_and_no_other():
    listed = {name for row in _rows(_section("http.md", "Request")) for name in _names(row[0])}
    assert listed == set(types.AskRequest.model_fields)


def test_the_filter_table_has_every_operator():
    listed = {name for row in _rows(_section("questions.md", "Filters")) for name in _names(row[0])}
    assert listed == {*get_args(Operator), *GROUPS}


def test_the_endpoints_are_those_of_the_routes():
    listed = set()
    for line in _ROW.findall(_section("http.md", "Endpoints")):
        methods, paths = line.split(" | ")[:2]
        for method in methods.split(", "):
            listed |= {(method, name) for name in _names(paths) if name.startswith("/")}
    served = set()
    for path in (ROOT / "agent" / "serve" / "http").rglob("*.py"):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if hasattr(module, "router") and path.stem != "console":
            for route in module.router().routes:
                name = re.sub(r"\{(\w+):path\}", r"{\1}", route.path)
                served |= {(method, name) for method in route.methods - {"HEAD"}}
    assert listed == served - {("POST", "/mcp/")}
