"""Print the figures of `eval run` and `eval tune` on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from evals.metrics import ANSWERS
from evals.tables import show_table


def show_run(found: Mapping[str, Any]) -> None:
    """Print the averages overall, by class and by language; a dash if a metric applies to no question."""
    groups = {"all": found["metrics"], **found["by_class"], **found["by_language"]}
    counts = {"all": len(found["questions"])}
    for row in found["questions"]:
        for group in (row["class"], row["language"]):
            counts[group] = counts.get(group, 0) + 1
    measured = [name for name, value in found["metrics"].items() if value is not None]
    latency = "  ".join(f"{name} {value:.1f}" for name, value in found["latency_ms"].items())
    title = f"{found['dataset']} ({found['split']}): {found['documents']} documents, {found['chunks']} passages"
    for names in (
        [name for name in measured if name not in ANSWERS],
        [name for name in measured if name in ANSWERS],
    ):
        rows = [
            (group, str(counts[group]), *("-" if scores[name] is None else f"{scores[name]:.3f}" for name in names))
            for group, scores in groups.items()
        ]
        if names:
            show_table(title, ("questions", "count", *names), rows)
        title = "answers"
    load = f", {found['at_once']} questions at a time" if found["at_once"] > 1 else ""
    print(f"latency: {latency} ms{load}")
    for line in _costs(found):
        print(line)
    asked = sum(row["intent_by"] == "llm" for row in found["questions"])
    if asked:
        print(f"the model read {asked} of {len(found['questions'])} questions; the rules read the others")
    failed = sum(row["status"] == "error" for row in found["questions"])
    if failed:
        print(f"{failed} questions failed and count as missed")


def _costs(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on tokens, degraded answers and answers that the judge could not grade."""
    for who, prefix in (("answers", ""), ("judge", "judge_")):
        prompt, completion, cost = (
            found["usage"][f"{prefix}{one}"] for one in ("prompt_tokens", "completion_tokens", "cost")
        )
        if prompt is not None:
            price = f", {cost:.4f} USD" if cost is not None else ""
            yield f"tokens of the {who}: {prompt:,} in prompts, {completion:,} in replies{price}"
    for name, count in found["degraded"].items():
        yield f"degraded: {name} in {count} of {len(found['questions'])}"
    failed = sum(row["grade"] is not None and row["grade"]["score"] is None for row in found["questions"])
    if failed:
        yield f"{failed} answers are not judged, because the judge gave no usable reply"


def show_tuned(found: Mapping[str, Any]) -> None:
    """Print what `signalbox eval tune` found, and the settings to use.

    Shows the scores of the fusion and of the ranker before and after tuning, both on the questions tuned on and on
    those to verify with; and whether the fusion, the ranker and the relevance threshold gained.

    Args:
        found: result of `evals.tune.tune`.
    """
    from evals.settings_file import threshold_verdict, verdict

    tuned_on, verified_on = found["tuned_on"], found["verified_on"]
    rows = []
    for name, made in (("fusion", found["fusion"]), ("ranker", found["ltr"])):
        if "before" not in made:
            continue
        for when in ("before", "after"):
            rows.append((f"{name} {when}", *(f"{made[when][part]:.4f}" for part in ("tuned_on", "verified_on"))))
    columns = (found["metric"], *(f"{one['from']} ({one['questions']})" for one in (tuned_on, verified_on)))
    show_table(found["dataset"], columns, rows)
    best = ", ".join(f"{key.upper()}={value}" for key, value in found["fusion"]["after"]["settings"].items())
    print(f"best fusion settings: {best}")
    for name, made in (("fusion", found["fusion"]), ("ranker", found["ltr"])):
        print(f"{name}: {verdict(made)}")
    print(f"threshold: {threshold_verdict(found['threshold'])}")
    if found["settings"]:
        print(
            "use:", *(f"  {key}={'' if value is None else value}" for key, value in found["settings"].items()), sep="\n"
        )
    else:
        print("use: the current settings")
