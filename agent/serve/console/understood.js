// Shows the interpretation: filters and boosts with their origin, searches, sources, and dropped conditions.

import { h, section } from "./dom.js";
import { number, reasonText, t } from "./i18n.js";
import { canonical, degradedText, filterText, isSame, partsOf, sourceName } from "./phrases.js";

/**
 * Returns every condition of a question, its origin and whether it was kept.
 * @returns {{filter: object, from: "caller"|"rules"|"model", confidence: number|null, firm: boolean, dropped: boolean, why?: string}[]}
 */
export function conditions(trace) {
  const { intent, request } = trace;
  const callers = partsOf(request.filter);
  const dropped = new Set(trace.relaxed.map((one) => canonical(one.dropped)));
  const isCallers = (part) => callers.some((one) => isSame(one, part));
  const found = callers.map((filter) => ({ filter, from: "caller", confidence: null, firm: true, dropped: false }));
  if (intent.by === "llm") {
    for (const filter of partsOf(intent.filter).filter((part) => !isCallers(part))) {
      found.push({ filter, from: "model", confidence: intent.confidence, firm: true, dropped: dropped.has(canonical(filter)) });
    }
  } else if (intent.by === "rules") {
    for (const { filter, confidence, firm, why } of trace.stated) {
      const gone = dropped.has(canonical(filter)) || partsOf(filter).every((part) => dropped.has(canonical(part)));
      found.push({ filter, from: "rules", confidence, firm, dropped: gone, why });
    }
  }
  return found;
}

/**
 * @param {object} trace the decision record
 * @param {{remove: Function, restore: Function}|null} actions of a chip's buttons; null for no buttons
 */
export function understood(trace, actions) {
  const { intent } = trace;
  const found = conditions(trace);
  const chips = found.filter((one) => one.firm).map((one) => chip(one, actions));
  const boosts = found.filter((one) => !one.firm).map((one) => chip(one, actions));
  for (const filter of trace.request.ignore ?? []) chips.push(ignoredChip(filter, actions));
  const facts = [];
  if (intent.question !== trace.request.query) facts.push([t("understood.question"), intent.question]);
  if (intent.searches.length) {
    facts.push([t("understood.searches"), h("ul", { class: "plain" }, intent.searches.map((one) => h("li", {}, one)))]);
  }
  if (trace.principals?.length) facts.push([t("understood.reads_as"), trace.principals.join(", ")]);
  if (intent.aggregate) facts.push([t("understood.calculate"), aggregateText(intent.aggregate)]);
  if (intent.scope?.length) facts.push([t("understood.scope"), h("ul", { class: "plain" }, intent.scope.map(choiceLine(String)))]);
  if (intent.sources.length) facts.push([t("understood.sources"), h("ul", { class: "plain" }, intent.sources.map(choiceLine(sourceName)))]);
  return section(
    t("understood"),
    { class: "card understood" },
    h("p", { class: "soft" }, summary(trace)),
    chips.length
      ? h("ul", { class: "chips", "aria-label": t("understood.filters") }, chips)
      : h("p", {}, t(intent.kind === "none" ? "understood.small_talk" : "understood.no_filter")),
    boosts.length
      ? [h("h3", {}, t("understood.boosts")), h("p", { class: "soft" }, t("understood.boosts_said")), h("ul", { class: "chips boosts", "aria-label": t("understood.boosts") }, boosts)]
      : null,
    facts.length ? h("dl", { class: "facts" }, facts.map(([name, said]) => h("div", {}, h("dt", {}, name), h("dd", {}, said)))) : null,
    notices(trace),
  );
}

function summary(trace) {
  const { intent } = trace;
  return t("understood.summary", {
    kind: t(`kind.${intent.kind}`),
    by: t(`by.${intent.by}`),
    confidence: number(intent.confidence * 100),
    collections: intent.collections.join(", ") || "–",
  });
}

function chip({ filter, from, confidence, firm, dropped, why }, actions) {
  const text = filterText(filter);
  const origin = confidence === null ? t(`from.${from}`) : t("from.sure", { from: t(`from.${from}`), confidence: number(confidence * 100) });
  const how = dropped ? t("chip.dropped") : firm ? null : t("chip.likely");
  return h(
    "li",
    { class: `chip ${from}${dropped ? " dropped" : ""}${firm ? "" : " boost"}` },
    h("span", { class: "chip-text" }, text),
    h("span", { class: "chip-from" }, [origin, why, how].filter(Boolean).join(" · ")),
    actions
      ? h("button", { class: "chip-button", type: "button", "aria-label": t("chip.remove", { filter: text }), title: t("chip.remove", { filter: text }), onclick: () => actions.remove(filter, from) }, "✕")
      : null,
  );
}

function ignoredChip(filter, actions) {
  const text = filterText(filter);
  return h(
    "li",
    { class: "chip ignored" },
    h("span", { class: "chip-text" }, h("s", {}, text)),
    h("span", { class: "chip-from" }, t("chip.ignored")),
    actions
      ? h("button", { class: "chip-button", type: "button", "aria-label": t("chip.restore", { filter: text }), title: t("chip.restore", { filter: text }), onclick: () => actions.restore(filter) }, "↺")
      : null,
  );
}

/** Returns a line for a chosen source or collection. */
function choiceLine(shown) {
  return ({ name, confidence, reason }) =>
    h("li", {}, h("span", { class: "strong" }, shown(name)), ` ${number(confidence * 100)} %`, h("span", { class: "soft" }, ` · ${reasonText(reason)}`));
}

function aggregateText(aggregate) {
  return Object.entries(aggregate)
    .filter(([, value]) => value !== null && value !== false && !(Array.isArray(value) && !value.length))
    .sort(([one], [other]) => (other === "op") - (one === "op"))
    .map(([name, value]) => (name === "op" ? value : `${name.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`))
    .join(" · ");
}

/** Returns in words what was dropped, rejected or missing. */
function notices(trace) {
  const lines = [];
  for (const { dropped, reason } of trace.relaxed) lines.push(["warning", t("notice.relaxed", { filter: filterText(dropped), reason: reasonText(reason) })]);
  for (const { what, reason, valid } of trace.intent.rejected) {
    const more = valid.length ? ` ${t("valid", { values: valid.slice(0, 8).join(", ") })}` : "";
    lines.push(["warning", t("notice.rejected", { what, reason: reasonText(reason) }) + more]);
  }
  // A missing model is reported in place of the answer.
  for (const name of trace.degraded.filter((one) => one !== "no_model")) lines.push(["warning", degradedText(name)]);
  return lines.map(([kind, text]) => h("p", { class: `notice ${kind}` }, text));
}
