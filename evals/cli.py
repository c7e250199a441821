"""The commands `signalbox eval ...`; each imports its heavy modules only when it runs, so that `--help` is fast."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from evals import candidate_commands, published_command, result_commands, run_command
from evals.options import AsJson, Changes, Split, check_writable, settings_of, write_figures
from evals.run_display import show_tuned
from evals.tables import show_table
from retrievers.core.errors import BadRequest

app = typer.Typer(
    name="eval",
    help="Measure quality and speed on labelled questions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


Folder = Annotated[Path, typer.Argument(metavar="DATASET", help="folder in BEIR or routed form")]


app.command()(run_command.run)
app.command()(published_command.published)
app.command()(result_commands.compare)
app.command()(result_commands.report)
app.command()(candidate_commands.collect)
app.command()(candidate_commands.questions)


@app.command()
def bench(
    dataset: Folder,
    changes: Changes = None,
    questions: Annotated[int, typer.Option(min=1, help="maximum number of questions")] = 300,
    peers: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PYTHON", help="interpreter that has LangChain, LlamaIndex or Haystack installed; may be repeated"
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(min=10, max=1000, help="passages of each of a peer's two searches; the service takes 100")
    ] = 100,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write the comparison with --peers as JSON, Markdown and SVG")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure latency, throughput and ingestion against plain SQL and peers, in one run.

    Keep the machine otherwise idle.
    """
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals import datasets, peer_report
    from evals.bench import bench as measure
    from evals.bench import described
    from evals.peer_comparison import PeerOptions

    if out is not None and not peers:
        raise BadRequest("--out writes the comparison with peers: give --peers PYTHON, too", where="--out")
    if out is not None:
        check_writable(out / "bench.json" if out.is_dir() else out)
    given = load_settings(settings_of(changes))
    options = PeerOptions(peers, depth=depth, changes=settings_of(changes)) if peers else None
    found = asyncio.run(measure(datasets.load(dataset), given, print_note, limit=questions, peers=options))
    if out is not None:
        for file in peer_report.write_report(out, found):
            print_note(f"written to {file}")
    if as_json:
        write_json(found)
        return 0
    counts = f"{found['questions']} questions, {found['documents']} documents, {found['chunks']} passages"
    show_table(f"{found['dataset']}: {counts}", ("what", "figure"), described(found))
    if options is not None:
        show_table("beside the peers", peer_report.COLUMNS, peer_report.contender_rows(found["beside"]))
    return 0


@app.command()
def scope(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="datasets, each a collection")],
    changes: Changes = None,
    questions: Annotated[
        int, typer.Option(min=1, help="number of questions of a group, spread evenly over its folders")
    ] = 200,
    groups: Annotated[int, typer.Option(min=0, help="number of random groups of folders; 0: all are one group")] = 0,
    size: Annotated[int, typer.Option(min=2, help="number of folders of a random group")] = 6,
    seed: Annotated[int, typer.Option(help="seed of the random groups")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write the chosen collections to this file")] = None,
    as_json: AsJson = False,
) -> int:
    """Measure how often the right collection is chosen for a question that names none."""
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals import collection_choice

    check_writable(out)
    given = load_settings(settings_of(changes))
    within = collection_choice.CollectionGroups(groups, size, seed)
    found = asyncio.run(
        collection_choice.measure([one for one in folders if one.is_dir()], questions, given, print_note, within)
    )
    if out is not None:
        write_figures(out, found)
    if as_json:
        write_json(found)
        return 0
    names = list(found["figures"]["all"])
    for part, title in (("figures", "questions of"), ("classes", "class")):
        rows = [
            (name, *("-" if figures[one] is None else str(figures[one]) for one in names))
            for name, figures in found[part].items()
        ]
        if rows:
            show_table("collections chosen for the questions", (title, *names), rows)
    return 0


@app.command()
def access(
    requests: Annotated[int, typer.Option(min=1, help="number of requests of all seeds together")] = 2000,
    seed: Annotated[list[int] | None, typer.Option(help="seed of documents and requests; may be repeated")] = None,
    documents: Annotated[
        int, typer.Option(min=0, help="documents to compare times with and without readers; 0: none")
    ] = 1500,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write all figures to this file")] = None,
    as_json: AsJson = False,
) -> int:
    """Send random requests of readers while documents and readers change; count answers that show too much.

    It uses an embedded database and a scripted model of its own, and rules read the questions. Exit code 1 if an answer
    showed something that its caller may not read, or a wrong count.
    """
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals import access

    check_writable(out)
    given = load_settings(settings_of(changes))
    found = asyncio.run(access.measure(requests, seed or [1], given, print_note, documents=documents))
    if out is not None:
        write_figures(out, found)
    for line in found["told"]:
        print_note(line)
    if as_json:
        write_json(found)
    else:
        columns = ("door", "requests", "shown too much", "wrong count or status")
        show_table("access inside and between tenants", columns, access.described(found))
    return 1 if found["all"]["leaked"] or found["all"]["wrong"] else 0


@app.command()
def reading(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="folders with questions, see README.md")],
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write the readings to this file")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="list the questions whose reading differs from this file")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Judge how the rules read the questions of each folder: filters, periods, values, sources. Needs no model."""
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals import reading

    check_writable(out)
    before = reading.load_measurement(against) if against is not None else None
    given = load_settings({**settings_of(changes), "intent": "rules", "reranker": "none"})
    found = asyncio.run(reading.measure(folders, given, print_note))
    if out is not None:
        write_figures(out, found)
    if as_json:
        write_json(found)
        return 0
    for name, figures in {**found["collections"], "all": found["all"]}.items():
        shown = [(key, str(value)) for key, value in figures.items() if value is not None]
        show_table(name, ("what", "figure"), shown)
    for line in reading.changed_outcomes(before, found) if before is not None else ():
        print_note(line)
    return 0


@app.command()
def ablate(
    folders: Annotated[list[Path], typer.Argument(metavar="DATASET...", help="folders in BEIR or routed form")],
    changes: Changes = None,
    split: Split = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="use only the first N questions of each dataset")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="stage to measure: a setting, or `source`; may be repeated; default: all"),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.json", help="write all figures to this file")] = None,
    as_json: AsJson = False,
) -> int:
    """Switch off each stage in turn, and try each default against its alternatives, on the same questions.

    Exit code 1 if an alternative or a dataset failed; all others are measured.
    """
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals import ablate, datasets

    check_writable(out)
    given, loaded = load_settings(settings_of(changes)), [datasets.load(folder, split) for folder in folders]
    keep = partial(write_figures, out) if out is not None else None
    found = asyncio.run(ablate.ablate(loaded, given, print_note, limit=limit, only=only or (), keep=keep))
    if as_json:
        write_json(found)
    else:
        for table in ablate.described(found):
            show_table(*table)
    return 1 if ablate.has_failed(found) else 0


@app.command()
def tune(
    dataset: Folder,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the ranker here instead of to SIGNALBOX_HOME/ltr.json")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="write the settings that help here, with the evidence")
    ] = None,
    limit: Annotated[int, typer.Option(min=2, help="maximum number of questions in each part")] = 1000,
    as_json: AsJson = False,
) -> int:
    """Find the best fusion settings and minimum relevance for a collection, and train a ranker for it.

    All are fitted on the questions of the split train or dev and verified on those of test; with only one split, on a
    random half each. An improvement that the second part does not confirm is neither recommended nor written.
    """
    from agent.retrieval.rerank.ltr import FILE
    from agent.serve.cli.output import print_note, write_json
    from agent.settings import load_settings
    from evals.settings_file import check_settings_path, write_settings
    from evals.tune import split_questions
    from evals.tune import tune as search

    given = load_settings(settings_of(changes))
    path = (out or given.home.expanduser() / FILE).absolute()
    check_writable(out)
    check_settings_path(settings)
    found = asyncio.run(search(split_questions(dataset, limit=limit), given, print_note, out=path))
    if settings is not None:
        write_settings(settings, found)
        print_note(f"written to {settings}")
    write_json(found) if as_json else show_tuned(found)
    return 0


@app.command()
def load(
    dataset: Folder,
    url: Annotated[str, typer.Option(help="address of a running `signalbox serve`")] = "http://127.0.0.1:8000",
    collection: Annotated[str | None, typer.Option(help="collection to search; default: all")] = None,
    key_file: Annotated[Path | None, typer.Option(help="file with the API key")] = None,
    connections: Annotated[
        int, typer.Option(min=1, max=1000, help="number of connections that send questions without a pause")
    ] = 16,
    rate: Annotated[
        float | None,
        typer.Option(min=0.1, help="send this number of questions per second instead, without waiting for the answers"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="duration in seconds")] = 60.0,
    as_json: AsJson = False,
) -> int:
    """Send a dataset's questions to a running service; report throughput, latency and errors.

    Exit code 1 if a response had a status other than 200 and 503.
    """
    from agent.serve.cli.output import write_json
    from evals import datasets
    from evals.load import LoadTarget, closed_loop, described, open_loop, read_key

    questions = [{"query": one.text, "collection": collection} for one in datasets.load(dataset).questions]
    target = LoadTarget(url, read_key(key_file))
    if rate is None:
        found = asyncio.run(closed_loop(target, questions, connections=connections, seconds=seconds))
    else:
        found = asyncio.run(open_loop(target, questions, rate=rate, seconds=seconds))
    write_json(found) if as_json else show_table(url, ("what", "figure"), described(found))
    return 1 if found["errors"] else 0
