// Shows a document in a dialog, with the characters of a citation or hit marked.

import { api } from "./api.js";
import { dialog, h, marked, outward, replace } from "./dom.js";
import { t } from "./i18n.js";
import { problemBox, valueText, waiting } from "./phrases.js";

/** Returns the collection in a passage id ("peps/pep-0008#3" of document "pep-0008"); "" if there is none. */
export function collectionOf(chunkId, documentId) {
  const whole = chunkId.slice(0, chunkId.lastIndexOf("#"));
  return whole.endsWith(`/${documentId}`) ? whole.slice(0, -documentId.length - 1) : "";
}

export function metadataList(metadata) {
  const held = Object.entries(metadata ?? {}).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
  if (!held.length) return null;
  return h("dl", { class: "metadata" }, held.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, valueText(value)))));
}

/**
 * Shows a document.
 * @param {object} place
 * @param {string} place.chunkId id of one of its passages
 * @param {string} place.documentId
 * @param {string} place.title
 * @param {[number, number]|null} place.span characters [start, end) of the document's text to mark
 * @param {object|null} place.hit shown if the document is not stored here, such as a web page
 * @param {string} place.label meaning of the marked characters
 */
export function openDocument({ chunkId, documentId, title, span = null, hit = null, label = "" }) {
  const body = h("div", { class: "document" }, waiting());
  dialog({ title: title || documentId, closeLabel: t("close"), wide: true }, body);
  const show = (document, spans, metadata) => {
    replace(
      body,
      label ? h("p", { class: "soft" }, label) : null,
      document.url ? h("p", {}, outward(document.url)) : null,
      metadataList(metadata),
      h("div", { class: "text", tabindex: 0, role: "region", "aria-label": t("document.text") }, marked(document.text, spans)),
    );
    body.querySelector("mark")?.scrollIntoView({ block: "center" });
  };
  const load = async () => {
    const collection = collectionOf(chunkId, documentId);
    try {
      const found = await api.document(collection, documentId);
      show(found, span ? [span] : [], found.metadata);
    } catch (problem) {
      if (problem.status === 404 && hit?.text) show({ text: hit.text, url: hit.url }, hit.highlights, hit.metadata);
      else replace(body, problem.status === 404 ? h("p", {}, t("document.gone")) : problemBox(problem, load));
    }
  };
  load();
}
