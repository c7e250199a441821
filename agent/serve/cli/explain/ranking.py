"""Section of a decision record: the ranking."""

from rich.table import Table
from rich.text import Text

from agent.options import rank_features
from agent.serve.cli.explain.sections import Json, cell, count_text, new_table, score_text, shorten


def ranking(trace: Json) -> Table | Text | None:
    """Return a table of the hits with each source's score and rank; a dash means the source did not find the hit.

    Without hits, return a line that says so, or None if nothing was searched.
    """
    if not trace["hits"]:
        return cell("no hit") if trace["plan"] else None
    sources = list(dict.fromkeys(source for hit in trace["hits"] for source in hit["ranks"]))
    fused = {id: rank for rank, (id, _) in enumerate(trace["ranking"], 1)}
    reranked = any("rerank" in hit["scores"] for hit in trace["hits"])
    features = [kind for kind in rank_features.KINDS if any(kind in hit["scores"] for hit in trace["hits"])]
    # Extra columns for the score that decides the order, if it is neither the fused score nor a source's.
    judged = any(hit.get("relevance") is not None for hit in trace["hits"])
    headed = [*(["score"] if features else []), *(["reranked"] if reranked else []), "fused", *features, *sources]
    headed = ["relevance", *headed] if judged else headed
    table = new_table("rank", *headed, "passage", right=["rank", *headed])
    for hit in trace["hits"]:
        cells = [str(hit["rank"])]
        if judged:
            cells.append(score_text(hit.get("relevance"), None))
        if features:
            cells.append(score_text(hit["score"], None))
        if reranked:
            cells.append(score_text(hit["scores"].get("rerank"), None))
        cells.append(score_text(hit["scores"].get("fused"), fused.get(hit["id"]) if reranked or features else None))
        cells += [score_text(hit["scores"].get(kind), None) for kind in features]
        cells += [score_text(hit["scores"].get(source), hit["ranks"].get(source)) for source in sources]
        table.add_row(*map(cell, cells), cell(f"{shorten(hit['title'])}  [{hit['id']}]"))
    return table


def rerank_line(trace: Json) -> Text | None:
    """Return a line about the reranking; None if no reranker ran."""
    done = trace.get("reranking")
    if not done:
        return None
    if done["error"]:
        return cell(f"not reranked by {done['by']}: {done['error']}", "yellow")
    left_out = f"; {count_text(done['left_out'], 'hit')} below {done['minimum']:g} left out" if done["left_out"] else ""
    return cell(f"reranked by {done['by']}: the first {count_text(done['scores'], 'hit')}{left_out}", "dim")


def lexical_weight_line(trace: Json) -> Text | None:
    """Return a line with the share of full text in the fused score; None if hits were not fused."""
    shares = ", ".join(
        f"{weight:.2f}" + (f' in "{shorten(search, 40)}"' if len(trace["lexical_weights"]) > 1 else "")
        for search, weight in trace["lexical_weights"].items()
    )
    return (
        cell(f"share of full text in the fused score: {shares}; # is the rank in that source", "dim")
        if shares
        else None
    )
