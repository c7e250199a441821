// Shows the ranking: every hit with each source's score, the fused score and the reranked score as bars.

import { h, section } from "./dom.js";
import { number, score, t } from "./i18n.js";
import { counted, sourceName } from "./phrases.js";

const FEATURES = ["prior", "recency", "tags", "feedback"];

/** Returns the columns of a ranking: the sources' scores, then the fused and reranked scores. */
function columnsOf(trace) {
  const asked = new Set(trace.plan.map((step) => step.source));
  const sources = [...asked].filter((name) => trace.hits.some((hit) => name in hit.ranks));
  const held = (name) => trace.hits.some((hit) => name in hit.scores);
  const features = [...new Set(trace.hits.flatMap((hit) => Object.keys(hit.scores)))].filter((name) => FEATURES.includes(name));
  const fused = new Map(trace.ranking.map(([id], place) => [id, place + 1]));
  const columns = sources.map((name) => ({
    name: sourceName(name), group: "before", score: (hit) => hit.scores[name], rank: (hit) => hit.ranks[name],
  }));
  if (held("boost")) columns.push({ name: t("ranking.boost"), group: "fused", score: (hit) => hit.scores.boost, rank: () => null });
  columns.push({ name: t("ranking.fused"), group: "fused", score: (hit) => hit.scores.fused, rank: (hit) => fused.get(hit.id) });
  for (const name of features) columns.push({ name, group: "after", score: (hit) => hit.scores[name], rank: () => null });
  if (held("rerank")) columns.push({ name: t("ranking.reranked"), group: "after", score: (hit) => hit.scores.rerank, rank: (hit) => hit.rank });
  for (const column of columns) column.most = Math.max(...trace.hits.map((hit) => column.score(hit) ?? 0), 1e-9);
  return columns;
}

/** @param {(hit: object) => void} open shows a hit's document */
export function ranking(trace, open) {
  if (!trace.hits.length) return null;
  const columns = columnsOf(trace);
  const fused = new Map(trace.ranking.map(([id], place) => [id, place + 1]));
  const groups = [["before", t("ranking.before")], ["fused", t("ranking.after_fusion")], ["after", t("ranking.after_reranking")]];
  const shown = groups.map(([name, title]) => [name, title, columns.filter((one) => one.group === name).length]).filter(([, , count]) => count);
  return section(
    t("ranking"),
    { class: "card" },
    h("p", { class: "soft" }, [t("ranking.said", { n: number(trace.hits.length), all: number(trace.ranked) }), weights(trace), reranked(trace)].filter(Boolean).join(" ")),
    h(
      "table",
      { class: "ranking" },
      h("colgroup", {}, h("col", { class: "col-rank" }), h("col", { class: "col-passage" }), columns.map(() => h("col"))),
      h(
        "thead",
        {},
        h("tr", { class: "groups" }, h("th", { colspan: 2 }), shown.map(([name, title, count]) => h("th", { colspan: count, scope: "colgroup", class: name }, title))),
        h("tr", {}, h("th", { scope: "col" }, t("ranking.rank")), h("th", { scope: "col" }, t("ranking.passage")), columns.map((one) => h("th", { scope: "col" }, one.name))),
      ),
      h("tbody", {}, trace.hits.map((hit) => row(hit, columns, fused.get(hit.id), open))),
    ),
  );
}

function row(hit, columns, fused, open) {
  return h(
    "tr",
    {},
    h("td", { class: "rank" }, h("span", { class: "strong" }, String(hit.rank)), moved(fused, hit.rank)),
    h("th", { scope: "row", class: "passage-cell" }, h("button", { class: "link", type: "button", onclick: () => open(hit) }, hit.title || hit.document_id), h("span", { class: "soft" }, hit.document_id)),
    columns.map((column) => h("td", { "data-label": column.name }, bar(column.score(hit), column.most, column.rank(hit)))),
  );
}

/** Returns by how many ranks reranking moved a hit. */
function moved(fused, rank) {
  if (!fused || fused === rank) return null;
  const up = fused > rank;
  return h("span", { class: up ? "moved up" : "moved down", title: t("ranking.moved", { from: fused, to: rank }) }, `${up ? "▲" : "▼"}${Math.abs(fused - rank)}`);
}

function bar(value, most, rank) {
  if (value === undefined || value === null) return h("span", { class: "soft", "aria-label": t("ranking.not_found") }, "–");
  const fill = h("span", { class: "fill" });
  fill.style.setProperty("--share", String(Math.max(0.01, Math.min(1, value / most))));
  return h(
    "span",
    { class: "score" },
    h("span", { class: "score-bar", "aria-hidden": "true" }, fill),
    h("span", { class: "figure" }, score(value)),
    rank ? h("span", { class: "soft", "aria-label": t("ranking.at", { n: rank }) }, `#${rank}`) : null,
  );
}

function weights(trace) {
  const shares = Object.values(trace.lexical_weights).map((one) => `${number(one * 100)} %`);
  return shares.length ? t("ranking.weights", { shares: shares.join(", ") }) : null;
}

function reranked(trace) {
  const done = trace.reranking;
  if (!done || done.error) return null;
  return done.left_out ? counted("ranking.left_out", done.left_out) : null;
}
