// Turns values of the service's records into text.

import { h } from "./dom.js";
import { has, number, t } from "./i18n.js";

/** Returns a metadata value as text. */
export function valueText(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  if (typeof value === "boolean") return t(value ? "yes" : "no");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** Returns a list item with a value, its count and a bar relative to `most`. */
export function valueBar(value, count, most) {
  const fill = h("span", { class: "fill" });
  fill.style.setProperty("--share", String(count / most));
  return h("li", {}, h("span", { class: "value-name", title: value }, value), h("span", { class: "score-bar", "aria-hidden": "true" }, fill), h("span", { class: "figure" }, number(count)));
}

/** Returns the conditions that a filter joins by "and". */
export function partsOf(filter) {
  if (!filter) return [];
  return filter.type === "and" ? filter.filters : [filter];
}

/** Joins conditions into one filter; null if there are none. */
export function joined(parts) {
  if (parts.length < 2) return parts[0] ?? null;
  return { type: "and", filters: parts };
}

/** Returns the same text for equal filters, whatever the order of their keys. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

export const isSame = (one, other) => canonical(one) === canonical(other);

const isDay = (value) => typeof value === "string" && /^\d{4}-\d{2}-\d{2}/.test(value);

/** Returns a filter in words. */
export function filterText(filter) {
  const { type, key, value } = filter;
  if (type === "and" || type === "or") {
    const range = type === "and" ? rangeText(filter.filters) : null;
    if (range) return range;
    return filter.filters.map((one) => (["and", "or"].includes(one.type) ? `(${filterText(one)})` : filterText(one))).join(` ${t(`op.${type}`)} `);
  }
  if (type === "not") return t("op.not", { inner: filterText(filter.filter) });
  if (type === "exists") return t(value === false ? "op.missing" : "op.exists", { key });
  const dated = isDay(value) && has(`op.${type}.date`) ? `op.${type}.date` : `op.${type}`;
  return t(dated, { key, value: valueText(value) });
}

function rangeText(filters) {
  if (filters.length !== 2 || filters[0].key === undefined || filters[0].key !== filters[1].key) return null;
  const from = filters.find((one) => one.type === "gte");
  const to = filters.find((one) => one.type === "lt" || one.type === "lte");
  if (!from || !to) return null;
  const name = to.type === "lt" && isDay(to.value) ? "op.range.date" : `op.range.${to.type}`;
  return t(name, { key: from.key, from: valueText(from.value), to: valueText(to.value) });
}

/** Returns in words what an answer had to do without. */
export function degradedText(name) {
  if (has(`degraded.${name}`)) return t(`degraded.${name}`);
  const source = name.match(/^(.+)_unavailable$/);
  return source ? t("degraded.source", { source: sourceName(source[1]) }) : name.replaceAll("_", " ");
}

export const sourceName = (name) => (has(`source.${name}`) ? t(`source.${name}`) : name);
export const statusName = (status) => (has(`status.${status}`) ? t(`status.${status}`) : status);

/** Shows the problem of a failed request: what is wrong, where, and what is valid. */
export function problemBox(problem, onRetry = null) {
  const retry = onRetry ? h("button", { type: "button", onclick: onRetry }, t("try_again")) : null;
  return h("div", { class: "notice error", role: "alert" }, h("div", {}, problemLines(problem)), retry);
}

function problemLines(problem) {
  if (problem.title === "unreachable") return [h("p", {}, t("problem.unreachable"))];
  if (problem.status === 401) return [h("p", {}, t("problem.key"))];
  const lines = [h("p", {}, problem.detail || problem.title || t("problem.unknown", { status: problem.status ?? "" }))];
  for (const one of problem.errors ?? []) {
    if (one.detail !== problem.detail) lines.push(h("p", {}, one.where ? h("code", {}, one.where) : null, " ", one.detail));
    if (one.valid?.length) lines.push(h("p", { class: "soft" }, t("valid", { values: one.valid.join(", ") })));
  }
  if (problem.status === 503) lines.push(h("p", { class: "soft" }, t("problem.later", { s: problem.retryAfter ?? "5" })));
  return lines;
}

/** Returns a loading line that does not shift the layout when it disappears. */
export const waiting = () => h("p", { class: "soft waiting", role: "status" }, t("loading"));

export const empty = (title, ...more) => h("div", { class: "empty" }, h("p", { class: "strong" }, title), more);

/** Returns the counts of a job's documents: "3 added · 1 failed". */
export function outcome(job) {
  const parts = ["inserted", "updated", "unchanged"].filter((one) => job[one]).map((one) => counted(`job.${one}`, job[one]));
  if (job.failed_count) parts.push(counted("job.failed", job.failed_count));
  return parts.join(" · ");
}

/** Returns a count with its noun: "3 passages". */
export const counted = (name, n) => t(name, { n: n === 1 ? 1 : number(n) });
