// Shows two runs of one request side by side: differences in settings, interpretation and hits.

import { openHit } from "./answer.js";
import { h, section } from "./dom.js";
import { number, score, span, t } from "./i18n.js";
import { filterText, sourceName, valueText } from "./phrases.js";

/**
 * @param {object} before the first run's record
 * @param {object} after the second run's record
 * @param {object} found the differences, from `agent.records.replay.compare_traces`
 */
export function difference(before, after, found) {
  return section(
    t("compare"),
    { class: "card compare" },
    h("p", { class: found.same ? "notice" : "notice warning" }, t(found.same ? "compare.same" : "compare.other")),
    changes(found),
    h(
      "div",
      { class: "sides" },
      side(t("compare.before"), before, (hit) => hit.before, found.hits),
      side(t("compare.after"), after, (hit) => hit.after, found.hits),
    ),
    h("p", { class: "soft" }, h("a", { href: `#/traces/${after.trace_id}` }, t("compare.open"))),
  );
}

function changes(found) {
  const rows = [
    ...Object.entries(found.settings).map(([name, one]) => [name, one]),
    ...Object.entries(found.intent).map(([name, one]) => [t(`compare.intent.${name}`), one, name]),
    ...Object.entries(found.outcome).map(([name, one]) => [t(`compare.outcome.${name}`), one, name]),
    ...Object.entries(found.sources).filter(([, one]) => one.before !== one.after).map(([name, one]) => [t("compare.hits_of", { source: sourceName(name) }), one]),
  ];
  if (found.data.length) rows.push([t("compare.data"), { before: "", after: found.data.join(", ") }]);
  if (!rows.length) return null;
  return h(
    "table",
    { class: "changes-table" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("compare.what")), h("th", { scope: "col" }, t("compare.before")), h("th", { scope: "col" }, t("compare.after")))),
    h("tbody", {}, rows.map(([name, one, kind]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { "data-label": t("compare.before") }, said(one.before, kind)), h("td", { "data-label": t("compare.after") }, said(one.after, kind))))),
  );
}

function said(value, kind) {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return "–";
  if (kind === "filter" || kind === "soft_filter") return filterText(value);
  if (kind === "relaxed") return value.map((one) => filterText(one.dropped)).join("; ");
  if (kind === "sources") return value.map((one) => sourceName(one.name)).join(", ");
  if (kind === "rejected") return value.map((one) => one.what).join(", ");
  if (kind === "table") return t("rows", { n: value.count });
  if (kind === "lexical_weights") return Object.values(value).map((one) => number(one, 2)).join(", ");
  if (kind === "prompt") return t("compare.prompt", { tokens: number(value.tokens), digest: value.digest });
  return valueText(value);
}

function side(title, trace, rankOf, moves) {
  const byId = new Map(moves.map((one) => [one.id, one]));
  const hits = [...trace.hits].sort((one, other) => rankOf(byId.get(one.id)) - rankOf(byId.get(other.id)));
  return h(
    "div",
    { class: "side" },
    h("h3", {}, title, h("span", { class: "soft" }, ` · ${span(trace.took_ms)}`)),
    hits.length
      ? h("ol", { class: "moves" }, hits.map((hit) => h(
          "li",
          {},
          h("span", { class: "figure" }, String(rankOf(byId.get(hit.id)))),
          h("span", {}, h("button", { class: "link", type: "button", onclick: () => openHit(hit) }, hit.title || hit.document_id), move(byId.get(hit.id))),
          h("span", { class: "figure" }, score(hit.score)),
        )))
      : h("p", { class: "soft" }, t("compare.no_hits")),
  );
}

/** Returns how a hit moved between the two lists. */
function move(one) {
  if (one.before === null) return h("span", { class: "moved up" }, t("compare.new"));
  if (one.after === null) return h("span", { class: "moved down" }, t("compare.gone"));
  const by = one.before - one.after;
  if (!by) return null;
  return h("span", { class: by > 0 ? "moved up" : "moved down" }, `${by > 0 ? "▲" : "▼"}${Math.abs(by)}`);
}
