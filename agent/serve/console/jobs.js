// The Jobs view: ingestion jobs, their failures and retries.

import { api } from "./api.js";
import { h, notify, replace, section } from "./dom.js";
import { moment, number, t } from "./i18n.js";
import { empty, outcome, problemBox, waiting } from "./phrases.js";
import { syncsPart } from "./syncs.js";

const POLL_MS = 1500;
const isOpen = (job) => job.status === "queued" || job.status === "running";

export function jobsView(root, _parameters, id) {
  const place = h("div", {}, waiting());
  let timer = null;
  let gone = false;
  replace(root, h("h1", {}, id ? h("a", { href: "#/jobs" }, t("nav.jobs")) : t("nav.jobs"), id ? ` / ${id.slice(0, 8)}` : null), place);

  async function load() {
    try {
      const [found, syncs] = await Promise.all([id ? api.job(id) : api.jobs(), id ? [] : api.syncs()]);
      if (gone) return;
      replace(place, id ? detail(found) : [syncsPart(syncs, again), list(found)]);
      if (id ? isOpen(found) : found.some(isOpen)) timer = setTimeout(load, POLL_MS);
    } catch (problem) {
      if (!problem.errors) throw problem;
      if (!gone) replace(place, problemBox(problem, load));
    }
  }

  function again() {
    clearTimeout(timer);
    load();
  }

  function list(jobs) {
    if (!jobs.length) return h("div", { class: "card" }, empty(t("jobs.none"), h("p", {}, h("a", { href: "#/collections" }, t("jobs.none_how")))));
    return h("ul", { class: "rows card" }, jobs.map((job) => h(
      "li",
      {},
      h("a", { class: "row-link", href: `#/jobs/${job.job_id}` }, h("span", { class: "strong" }, job.collection), h("span", { class: "soft" }, moment(job.created_at))),
      h("span", {}, status(job), " ", h("span", { class: "soft" }, counts(job))),
    )));
  }

  function detail(job) {
    const retry = async () => {
      try {
        await api.retryJob(id);
        notify(t("jobs.retried"));
        await load();
      } catch (problem) {
        if (!problem.errors) throw problem;
        replace(place, problemBox(problem, load));
      }
    };
    return [
      section(
        t("jobs.job"),
        {},
        h("p", {}, status(job), " ", counts(job)),
        isOpen(job) ? h("progress", { max: job.documents ?? 1, value: job.done, "aria-label": t("jobs.progress") }) : null,
        h("dl", { class: "facts" }, [
          [t("ask.collection"), h("a", { href: `#/collections/${encodeURIComponent(job.collection)}` }, job.collection)],
          [t("jobs.created"), moment(job.created_at)],
          job.error ? [t("jobs.reason"), job.error] : null,
          job.next_try_at && isOpen(job) ? [t("jobs.next_try"), moment(job.next_try_at)] : null,
          [t("jobs.id"), h("code", {}, job.job_id)],
        ].filter(Boolean).map(([name, said]) => h("div", {}, h("dt", {}, name), h("dd", {}, said)))),
      ),
      job.failed.length || job.status === "failed"
        ? section(
            t("jobs.failures"),
            {},
            h("ul", { class: "rows" }, job.failed.map((one) => h("li", {}, h("span", { class: "strong" }, one.id ?? t("jobs.item", { n: one.index + 1 })), h("span", {}, one.reason)))),
            // A sync needs no retry: its next run reads the source again.
            job.sync ? null : h("button", { type: "button", onclick: retry }, t("jobs.retry")),
          )
        : null,
    ];
  }

  load();
  return () => {
    gone = true;
    clearTimeout(timer);
  };
}

function status(job) {
  return h("span", { class: `tag ${job.status}` }, t(`job.status.${job.status}`));
}

function counts(job) {
  const soFar = isOpen(job) && job.documents ? t("upload.storing", { done: number(job.done), all: number(job.documents) }) : null;
  const deleted = job.deleted ? t("syncs.deleted", { n: number(job.deleted) }) : null;
  return [job.file, outcome(job), deleted, soFar].filter(Boolean).join(" · ");
}
