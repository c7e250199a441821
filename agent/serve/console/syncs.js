// Lists the collections that follow a source, with their last runs and a button to run them now.

import { api } from "./api.js";
import { h, notify, section } from "./dom.js";
import { moment, number, t } from "./i18n.js";
import { outcome } from "./phrases.js";

/**
 * @param {object[]} syncs from GET /v1/syncs
 * @param {() => void} whenRun called after a run was requested
 */
export function syncsPart(syncs, whenRun) {
  if (!syncs.length) return null;
  return section(t("syncs.title"), {}, h("ul", { class: "rows" }, syncs.map((sync) => h(
    "li",
    {},
    h("span", { class: "strong" }, sync.name ?? sync.collection),
    h("span", {}, sync.source, " → ", h("a", { href: `#/collections/${encodeURIComponent(sync.collection)}` }, sync.collection)),
    h("span", { class: "soft" }, often(sync)),
    lastRun(sync.last),
    sync.has_worker ? runNow(sync, whenRun) : null,
  ))));
}

function often(sync) {
  if (!sync.every_s) return t("syncs.by_hand");
  return sync.has_worker ? t("syncs.next", { at: moment(sync.next_at) }) : t("syncs.no_worker");
}

function lastRun(job) {
  if (!job) return h("span", { class: "soft" }, t("syncs.never"));
  const said = [outcome(job), job.deleted ? t("syncs.deleted", { n: number(job.deleted) }) : null, job.error].filter(Boolean).join(" · ");
  return h("span", {}, h("span", { class: `tag ${job.status}` }, t(`job.status.${job.status}`)), " ", h("a", { href: `#/jobs/${job.job_id}` }, moment(job.finished_at ?? job.created_at)), " ", said);
}

function runNow(sync, whenRun) {
  const run = async () => {
    try {
      await api.runSync(sync.id);
    } catch (problem) {
      if (!problem.errors) throw problem;
      notify(problem.message, "error");
    }
    whenRun();
  };
  return h("button", { type: "button", onclick: run }, t("syncs.run"));
}
