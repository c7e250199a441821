// Builds filter conditions from the values in the field catalogue.

import { h, replace } from "./dom.js";
import { t } from "./i18n.js";
import { filterText } from "./phrases.js";

const OPERATORS = {
  string: ["eq", "ne", "contains", "prefix", "in", "exists"],
  number: ["eq", "gte", "lte", "gt", "lt", "exists"],
  date: ["gte", "lt", "eq", "exists"],
  boolean: ["eq", "exists"],
};

/** Returns the fields of several collections by name; of two types, the first is kept. */
export function fieldsOf(catalogues) {
  const fields = new Map();
  for (const field of catalogues.flatMap((one) => one.fields)) if (!fields.has(field.name)) fields.set(field.name, field);
  return [...fields.values()].sort((one, other) => one.name.localeCompare(other.name));
}

/**
 * Returns a form row for one condition.
 * @param {object[]} fields from a collection's catalogue
 * @param {(filter: object) => void} add called with the finished condition
 */
export function filterForm(fields, add) {
  const place = h("div", { class: "filter-value" });
  const operators = h("select", { "aria-label": t("filter.operator") });
  const names = h("select", { "aria-label": t("filter.field") }, fields.map((one) => h("option", { value: one.name }, one.name)));
  const chosen = () => fields.find((one) => one.name === names.value);
  let read = () => null;

  const showValue = () => {
    const field = chosen();
    if (operators.value === "exists") {
      read = () => true;
      replace(place);
      return;
    }
    const input = valueInput(field, operators.value);
    read = () => parsed(field, operators.value, input.value);
    replace(place, input, datalist(field, input));
  };
  const showField = () => {
    const item = chosen().item;
    replace(operators, (OPERATORS[item] ?? OPERATORS.string).map((one) => h("option", { value: one }, t(`operator.${one}`))));
    showValue();
  };
  names.addEventListener("change", showField);
  operators.addEventListener("change", showValue);
  showField();
  const finish = (event) => {
    event.preventDefault();
    const value = read();
    if (value === null) place.querySelector("input, select")?.focus();
    else add(operators.value === "exists" ? { type: "exists", key: names.value, value: true } : { type: operators.value, key: names.value, value });
  };
  return h("form", { class: "filter-form", "aria-label": t("filter.new"), onsubmit: finish }, names, operators, place, h("button", { type: "submit" }, t("filter.add")));
}

let lists = 0;

function valueInput(field, operator) {
  const label = { "aria-label": t("filter.value") };
  if (field.item === "boolean") return h("select", label, h("option", { value: "true" }, t("yes")), h("option", { value: "false" }, t("no")));
  if (field.item === "date") return h("input", { ...label, type: "date", min: day(field.min), max: operator === "lt" ? null : day(field.max), value: day(field.min) });
  if (field.item === "number") return h("input", { ...label, type: "number", step: "any", placeholder: range(field) });
  lists += 1;
  return h("input", { ...label, type: "text", list: `values-${lists}`, autocomplete: "off", placeholder: operator === "in" ? t("filter.several") : (field.top[0]?.[0] ?? "") });
}

function datalist(field, input) {
  const id = input.getAttribute("list");
  return id ? h("datalist", { id }, field.top.map(([value, count]) => h("option", { value, label: String(count) }))) : null;
}

const day = (value) => (value ? String(value).slice(0, 10) : null);
const range = (field) => (field.min === null ? "" : `${field.min} … ${field.max}`);

function parsed(field, operator, text) {
  const given = text.trim();
  if (!given) return null;
  if (field.item === "boolean") return given === "true";
  if (field.item === "number") return Number.isFinite(Number(given)) ? Number(given) : null;
  if (operator === "in") return given.split(/[,，]/).map((one) => one.trim()).filter(Boolean);
  return given;
}

/** Returns the current conditions, each with a button to remove it. */
export function filterChips(filters, remove) {
  return filters.map((filter) => {
    const text = filterText(filter);
    return h(
      "li",
      { class: "chip caller" },
      h("span", { class: "chip-text" }, text),
      h("button", { class: "chip-button", type: "button", "aria-label": t("chip.remove", { filter: text }), onclick: () => remove(filter) }, "✕"),
    );
  });
}
