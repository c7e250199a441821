// Translates the page's texts and formats numbers and times, in English and Chinese.

import { MESSAGES } from "./messages.js";
import { REASONS } from "./reasons.js";

const KEPT = "signalbox.language";
const LANGUAGES = ["en", "zh"];

function first() {
  const kept = localStorage.getItem(KEPT);
  if (LANGUAGES.includes(kept)) return kept;
  return (navigator.languages ?? [navigator.language]).map((one) => one.slice(0, 2)).find((one) => LANGUAGES.includes(one)) ?? "en";
}

let language = first();

export const currentLanguage = () => language;

export function setLanguage(wanted) {
  language = wanted;
  localStorage.setItem(KEPT, wanted);
}

/** Returns a message with its {placeholders} filled; "NAME.one" is the form for a count of exactly 1. */
export function t(name, values = {}) {
  const chosen = values.n === 1 && MESSAGES[`${name}.one`] ? `${name}.one` : name;
  const text = MESSAGES[chosen]?.[LANGUAGES.indexOf(language)] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, place) => String(values[place] ?? ""));
}

/** Returns whether the message exists. */
export const has = (name) => name in MESSAGES;

/** Returns a reason of the service in the page's language, or unchanged if there is no translation. */
export const reasonText = (reason) => (language === "zh" && Object.hasOwn(REASONS, reason) ? REASONS[reason] : reason);

/** Where in its file a passage stands, as the service says it: "pages 3-4", "sheet Prices, row 7". */
export function placeText(place) {
  const [, sheet, unit, numbers] = /^(?:sheet (.*), )?(page|slide|row)s? ([\d-]+)$/s.exec(place ?? "") ?? [];
  if (!unit) return "";
  const where = t(`place.${unit}`, { numbers });
  return sheet === undefined ? where : t("place.sheet", { sheet, where });
}

const locale = () => (language === "zh" ? "zh-CN" : "en-GB");

export const number = (value, digits = 0) => new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }).format(value);

/** Formats a score with a fixed number of digits, so that columns line up. */
export const score = (value) => new Intl.NumberFormat(locale(), { minimumFractionDigits: 3, maximumFractionDigits: 3 }).format(value);

/** Formats a time in the reader's time zone. */
export function moment(iso) {
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
}

/** Formats a duration given in milliseconds. */
export function span(ms) {
  return ms >= 1000 ? `${number(ms / 1000, 1)} s` : `${number(ms, ms < 10 ? 1 : 0)} ms`;
}
