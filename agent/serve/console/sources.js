// The Sources view: the sources with their limits and state, the tenant's settings and its use of today.

import { api, principals } from "./api.js";
import { h, replace, section } from "./dom.js";
import { moment, number, t } from "./i18n.js";
import { counted, problemBox, sourceName, waiting } from "./phrases.js";

/** Monday is 0, as in the settings. */
const MONDAY = Date.UTC(2024, 0, 1);
const DAY_MS = 86_400_000;

export function sourcesView(root) {
  const place = h("div", {}, waiting());
  replace(root, h("h1", {}, t("nav.sources")), place);

  async function load() {
    try {
      const [sources, tenant] = await Promise.all([api.sources(), api.tenant()]);
      replace(place, sourcesCard(sources), settingsCard(tenant), useCard(tenant), callerCard(tenant.caller));
    } catch (problem) {
      if (!problem.errors) throw problem;
      replace(place, problemBox(problem, load));
    }
  }

  load();
}

function sourcesCard(sources) {
  return section(t("sources.title"), {}, h("p", { class: "soft" }, t("sources.said")), h("ul", { class: "rows" }, sources.map((one) => h(
    "li",
    {},
    h(
      "div",
      { class: "row-head" },
      h("h3", {}, sourceName(one.name)),
      h("span", { class: "tag" }, t(`sources.kind.${one.kind}`)),
      h("span", { class: one.resting ? "tag failed" : "tag done" }, t(one.resting ? "sources.resting" : "sources.ready")),
    ),
    h("p", {}, one.description),
    h("p", { class: "soft" }, limits(one)),
    one.collections.length ? h("p", { class: "soft" }, t("sources.collections", { names: one.collections.join(", ") })) : null,
    one.examples.length ? h("p", { class: "soft" }, t("sources.examples", { questions: one.examples.join(" · ") })) : null,
  ))));
}

function limits(one) {
  return [
    one.named ? t("sources.named", { name: one.name }) : null,
    one.top_k === null ? null : counted("sources.top_k", one.top_k),
    one.min_relevance === null ? null : t("sources.min_relevance", { share: number(one.min_relevance, 2) }),
    t("sources.timeout", { s: number(one.timeout_s, 1) }),
    one.cost ? t("sources.cost", { usd: number(one.cost, 4) }) : null,
  ].filter(Boolean).join(" · ");
}

/** Shows each setting with its value and whether the tenant or the service sets it. */
function settingsCard({ tenant, settings, in_force: inForce }) {
  const shown = {
    sources: inForce.sources.map(sourceName).join(", "),
    time_zone: inForce.time_zone,
    week_start: inForce.week_start === null ? null : new Intl.DateTimeFormat(document.documentElement.lang, { weekday: "long", timeZone: "UTC" }).format(MONDAY + inForce.week_start * DAY_MS),
    fiscal_year_start: inForce.fiscal_year_start === null ? null : new Intl.DateTimeFormat(document.documentElement.lang, { month: "long", timeZone: "UTC" }).format(Date.UTC(2024, inForce.fiscal_year_start - 1)),
    collection: inForce.collection ?? t("ask.everything"),
    language: inForce.language ?? t("tenant.as_asked"),
  };
  return section(t("tenant.title", { name: tenant }), {}, h("dl", { class: "facts" }, Object.entries(shown).map(([name, value]) => h(
    "div",
    {},
    h("dt", {}, t(`tenant.${name}`)),
    h("dd", {}, value ?? "–", h("span", { class: "tag" }, t(settings[name] === null ? "tenant.of_service" : "tenant.own"))),
  ))));
}

function useCard({ in_force: inForce, use }) {
  return section(
    t("use.title"),
    {},
    h("ul", { class: "values quota" }, quota(t("use.questions"), use.questions, inForce.questions_per_day), quota(t("use.tokens"), use.tokens, inForce.tokens_per_day)),
    h("p", { class: "soft" }, t("use.ends", { at: moment(use.ends_at) })),
  );
}

function quota(name, used, most) {
  const fill = h("span", { class: "fill" });
  fill.style.setProperty("--share", String(most ? Math.min(1, used / most) : most === 0 ? 1 : 0));
  const figure = most === null ? t("use.unlimited", { used: number(used) }) : t("use.of", { used: number(used), most: number(most) });
  return h("li", {}, h("span", { class: "value-name" }, name), h("span", { class: "score-bar", "aria-hidden": "true" }, fill), h("span", { class: "figure" }, figure));
}

function callerCard(caller) {
  const chosen = caller.trusted ? principals.get() : "";
  const names = chosen || caller.principals.join(", ");
  const reads = names === "*" ? t("caller.everything") : names ? t("caller.reads", { names }) : t("caller.open");
  return section(
    t("caller.title"),
    {},
    h("p", {}, reads),
    h("p", { class: "soft" }, [t(caller.writes ? "caller.writes" : "caller.only_reads"), caller.trusted ? t("caller.trusted") : null].filter(Boolean).join(" ")),
  );
}
