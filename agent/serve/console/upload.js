// Uploads files into a collection, by file picker or drag and drop, with the real progress of each.

import { api, MOST_BYTES, upload } from "./api.js";
import { h, replace, section } from "./dom.js";
import { number, t } from "./i18n.js";
import { outcome, problemBox } from "./phrases.js";

const POLL_MS = 400;
/** Maximum number of failed documents listed in a row; the job's page lists all. */
const MOST_REASONS = 3;
const FORMATS = ".jsonl,.csv,.md,.markdown,.html,.htm,.txt,.pdf,.docx,.pptx,.xlsx,.eml,.json,.tsv";

/**
 * @param {string} collection the target; "" if the user enters it
 * @param {() => void} whenStored called after every stored file
 */
export function uploader(collection, whenStored) {
  const name = h("input", { id: "upload-collection", type: "text", value: collection, required: true, maxlength: 128, autocomplete: "off", placeholder: t("upload.name") });
  const picker = h("input", { class: "hidden", id: "upload-files", type: "file", multiple: true, accept: FORMATS, onchange: () => { start([...picker.files]); picker.value = ""; } });
  const drop = h(
    "label",
    { class: "drop", for: "upload-files" },
    h("span", { class: "strong" }, t("upload.drop")),
    h("span", { class: "soft" }, t("upload.formats", { mib: MOST_BYTES / 1024 / 1024 })),
  );
  const rows = h("ul", { class: "uploads", "aria-live": "polite" });
  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); start([...event.dataTransfer.files]); });

  function start(files) {
    const target = name.value.trim();
    if (!target) {
      name.setCustomValidity(t("upload.no_name"));
      name.reportValidity();
      name.setCustomValidity("");
      return;
    }
    // Upload one file at a time: the service reads them in this order, and each shows its own progress.
    files.reduce((before, file) => before.then(() => one(target, file)), Promise.resolve());
  }

  async function one(target, file) {
    const bar = h("progress", { max: 1, value: 0, "aria-label": file.name });
    const said = h("span", { class: "soft" }, t("upload.sending", { percent: 0 }));
    const row = h("li", {}, h("span", { class: "strong" }, file.name), bar, said);
    rows.prepend(row);
    const fail = (text) => { bar.remove(); row.classList.add("failed"); replace(said, text); };
    if (file.size > MOST_BYTES) return fail(t("upload.large", { size: number(file.size / 1024 / 1024, 1), mib: MOST_BYTES / 1024 / 1024 }));
    try {
      let job = await upload(target, file, (share) => {
        bar.value = share / 2;
        replace(said, share < 1 ? t("upload.sending", { percent: Math.floor(share * 100) }) : t("upload.reading"));
      });
      const id = job.job_id;
      job = await api.job(id);
      while (job.status === "queued" || job.status === "running") {
        // The first half of the bar is the upload, the second half reading and storing.
        bar.value = 0.5 + 0.5 * (job.documents ? job.done / job.documents : 0);
        replace(said, job.documents ? t("upload.storing", { done: number(job.done), all: number(job.documents) }) : t("upload.reading"));
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        job = await api.job(id);
      }
      bar.value = 1;
      finished(job, row, said, bar);
      whenStored();
    } catch (problem) {
      if (!problem.errors) throw problem;
      fail(problemBox(problem));
    }
  }

  function finished(job, row, said, bar) {
    if (job.status === "failed" || job.failed_count) {
      row.classList.add("failed");
      bar.remove();
    }
    const reasons = [...new Set(job.failed.map((one) => one.reason))].slice(0, MOST_REASONS);
    replace(said, [outcome(job) || t(`job.status.${job.status}`), job.error, ...reasons].filter(Boolean).join(" · "), " · ", h("a", { href: `#/jobs/${job.job_id}` }, t("upload.job")));
  }

  return section(
    t("upload"),
    { class: "card upload" },
    h("label", { class: "stacked", for: "upload-collection" }, t("upload.collection"), name),
    picker,
    drop,
    rows,
  );
}
