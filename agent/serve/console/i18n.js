// Every word of the page, in English and Chinese.

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

/** A message with its {places} filled; one that ends in a count has a form for exactly one ("n.one"). */
export function t(name, values = {}) {
  const chosen = values.n === 1 && MESSAGES[`${name}.one`] ? `${name}.one` : name;
  const text = MESSAGES[chosen]?.[LANGUAGES.indexOf(language)] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, place) => String(values[place] ?? ""));
}

/** Whether there is such a message. */
export const has = (name) => name in MESSAGES;

/** A reason of the service in the page's language, as far as it is known. */
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

/** A score, always with as many digits: figures below each other line up. */
export const score = (value) => new Intl.NumberFormat(locale(), { minimumFractionDigits: 3, maximumFractionDigits: 3 }).format(value);

/** A moment as the reader's clock shows it. */
export function moment(iso) {
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
}

/** A time span in milliseconds, short. */
export function span(ms) {
  return ms >= 1000 ? `${number(ms / 1000, 1)} s` : `${number(ms, ms < 10 ? 1 : 0)} ms`;
}
