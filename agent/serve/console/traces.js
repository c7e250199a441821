// The Traces view: show decision records, and replay them with other settings.

import { openHit, tableCard } from "./answer.js";
import { api } from "./api.js";
import { difference } from "./compare.js";
import { h, replace, section } from "./dom.js";
import { moment, span, t } from "./i18n.js";
import { counted, empty, problemBox, valueText, waiting } from "./phrases.js";
import { ranking } from "./ranking.js";
import { route } from "./route.js";
import { understood } from "./understood.js";

const LISTED = 50;
/** Settings a replay may change, with their values if few; see `agent.records.trace.REPLAYABLE`. */
const CHANGES = {
  fusion: ["convex", "rrf", "weighted_sum"],
  reranker: ["none", "hybrid"],
  intent: ["auto", "rules", "llm", "off"],
  fallback: ["ordered_backoff", "do_not_route", "route_to_all", "fail"],
  context: ["passage", "window", "section"],
  lexical_weight: "0.0 … 1.0",
  fusion_weights: "fulltext=0.05",
  depth: "10 … 1000",
  per_document: "1 … 100",
  rank_features: "",
  prompt_fields: "",
  rerank_min_score: "0.0 … 1.0",
  rerank_blend: "0.0 … 1.0",
  min_relevance: "0.0 … 1.0",
  max_rounds: "1 … 8",
  transforms: "",
  timeout_s: "0 … 120",
  source_timeout_s: "0 … 120",
  loop_calls: "0 … 8",
  loop_tokens: "0 … 1000000",
  loop_share: "0.0 … 1.0",
  time_zone: "Asia/Shanghai",
  week_start: ["0", "1", "2", "3", "4", "5", "6"],
  fiscal_year_start: ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"],
  language: "zh",
  judge: ["off", "llm"],
};

export function tracesView(root, _parameters, id) {
  const place = h("div", {}, waiting());
  replace(root, h("h1", {}, id ? h("a", { href: "#/traces" }, t("nav.traces")) : t("nav.traces"), id ? ` / ${id.slice(0, 8)}` : null), place);

  async function load() {
    try {
      if (id) showTrace(place, await api.trace(id));
      else replace(place, list(await api.traces(LISTED)));
    } catch (problem) {
      if (!problem.errors) throw problem;
      replace(place, problemBox(problem, load));
    }
  }

  load();
}

function list(traces) {
  if (!traces.length) return h("div", { class: "card" }, empty(t("traces.none"), h("p", {}, h("a", { href: "#/ask" }, t("traces.none_how")))));
  return h("ul", { class: "rows card" }, traces.map((one) => h(
    "li",
    {},
    h("a", { class: "row-link", href: `#/traces/${one.trace_id}` }, h("span", { class: "strong" }, one.query), h("span", { class: "soft" }, moment(one.created_at))),
    h("span", { class: "soft" }, [one.kind ? t(`request.${one.kind}`) : null, t(`result.${one.status}`), counted("hits", one.hits), one.collection, one.replay_of ? t("traces.replay") : null].filter(Boolean).join(" · ")),
  )));
}

function showTrace(place, trace) {
  const second = h("div", {});
  replace(
    place,
    section(
      t("traces.question"),
      {},
      h("p", { class: "question" }, trace.request.query ?? trace.query),
      h("p", { class: "soft" }, [moment(trace.created_at), t(`request.${trace.request.kind}`), t(`result.${trace.status}`), span(trace.took_ms), t("traces.kept", { until: moment(trace.expires_at) })].join(" · ")),
      trace.replay_of ? h("p", {}, h("a", { href: `#/traces/${trace.replay_of}` }, t("traces.replay_of")), Object.keys(trace.changes).length ? `: ${changed(trace.changes)}` : null) : null,
      h("a", { href: `#/ask?${new URLSearchParams({ q: trace.request.query ?? trace.query, collection: trace.request.collection ?? "", ...(trace.request.filter ? { filter: JSON.stringify(trace.request.filter) } : {}) })}` }, t("traces.ask_again")),
    ),
    replayForm(trace, second),
    second,
    understood(trace, null),
    tableCard(trace.table),
    trace.answer?.text ? section(t("answer"), {}, h("div", { class: "answer-text" }, trace.answer.text)) : null,
    route(trace),
    ranking(trace, openHit),
  );
}

const changed = (changes) => Object.entries(changes).map(([name, value]) => `${name} = ${valueText(value)}`).join(", ");

/** Returns a form that changes settings, repeats the request and shows both runs. */
function replayForm(trace, second) {
  const rows = h("div", { class: "changes" });
  const addRow = (name) => {
    const field = h("select", { "aria-label": t("replay.setting") }, Object.keys(CHANGES).map((one) => h("option", { value: one, selected: one === name }, one)));
    const value = h("span", { class: "value" });
    const showValue = () => {
      const form = CHANGES[field.value];
      const now = trace.settings[field.value];
      const label = { "aria-label": t("replay.value") };
      const valid = Array.isArray(form) ? [...new Set([...form, ...(now && field.value === "reranker" ? [String(now)] : [])])] : null;
      replace(
        value,
        valid
          ? h("select", label, valid.map((one) => h("option", { value: one, selected: one !== String(now) && one === valid.find((other) => other !== String(now)) }, one)))
          : h("input", { ...label, type: "text", placeholder: form, autocomplete: "off" }),
        h("span", { class: "soft" }, t("replay.was", { value: valueText(now) })),
      );
    };
    field.addEventListener("change", showValue);
    showValue();
    const row = h("div", { class: "change" }, field, value, h("button", { class: "quiet icon", type: "button", "aria-label": t("replay.without"), onclick: () => row.remove() }, "✕"));
    rows.append(row);
  };
  addRow("fusion");
  const run = async (event) => {
    event.preventDefault();
    const changes = {};
    for (const row of rows.children) changes[row.querySelector("select").value] = row.querySelector(".value select, .value input").value;
    replace(second, waiting());
    try {
      const result = await api.replay(trace.trace_id, changes);
      const after = await api.trace(result.trace_id);
      replace(second, difference(trace, after, result.difference));
      second.firstElementChild.scrollIntoView({ block: "start" });
    } catch (problem) {
      if (!problem.errors) throw problem;
      replace(second, problemBox(problem));
    }
  };
  return section(
    t("replay"),
    {},
    h("p", { class: "soft" }, t("replay.said")),
    h(
      "form",
      { onsubmit: run, "aria-label": t("replay") },
      rows,
      h("div", { class: "row" }, h("button", { class: "quiet", type: "button", onclick: () => addRow("reranker") }, t("replay.more")), h("button", { class: "primary", type: "submit" }, t("replay.run"))),
    ),
  );
}
