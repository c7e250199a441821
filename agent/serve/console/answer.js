// Shows an answer: citations, passages, the calculated table and the prompt.

import { h, marked, outward, pieces, section } from "./dom.js";
import { number, placeText, score, t } from "./i18n.js";
import { counted, sourceName, valueBar, valueText } from "./phrases.js";
import { metadataList, openDocument } from "./document.js";
import { markRight } from "./feedback.js";

const MOST_BARS = 30;
const CITED = /\[(\d{1,3})\]/g;

/** Opens the document of a citation with the cited characters marked. */
function openCitation(citation, hits) {
  openDocument({
    chunkId: citation.chunk_id,
    documentId: citation.document_id,
    title: citation.title,
    span: [citation.start, citation.end],
    hit: hits.find((one) => one.id === citation.chunk_id) ?? null,
    label: t("citation.label", { n: citation.n, start: number(citation.start), end: number(citation.end) }),
  });
}

export function openHit(hit) {
  openDocument({ chunkId: hit.id, documentId: hit.document_id, title: hit.title, hit });
}

/** Returns a button "[n]" that opens the cited document. */
function citationButton(citation, hits) {
  const label = t("citation.open", { n: citation.n, title: citation.title || citation.document_id });
  return h("button", { class: "cite", type: "button", "aria-label": label, title: label, onclick: () => openCitation(citation, hits) }, `[${citation.n}]`);
}

/** Returns a text with its citation numbers as buttons; a number without a passage stays text. */
function withCitations(text, answer) {
  const known = new Map(answer.citations.map((one) => [one.n, one]));
  const made = [];
  let last = 0;
  for (const found of text.matchAll(CITED)) {
    const citation = known.get(Number(found[1]));
    if (!citation) continue;
    made.push(text.slice(last, found.index), citationButton(citation, answer.hits));
    last = found.index + found[0].length;
  }
  return [...made, text.slice(last)];
}

/** Returns the answer's text; sentences that the passages do not support are underlined and labelled. */
function answerText(answer) {
  const doubtful = answer.sentences.filter((one) => one.supported === false);
  return pieces(answer.answer, doubtful.map((one) => [one.start, one.end])).map((one) => {
    const text = withCitations(one.text, answer);
    return one.inside ? h("span", { class: "doubtful", title: t("answer.doubtful") }, text, h("span", { class: "hidden" }, ` (${t("answer.doubtful")})`)) : text;
  });
}

export function answerCard(answer) {
  if (answer.refusal) return section(t("answer"), {}, h("p", { class: "notice warning" }, answer.refusal));
  if (!answer.model) {
    const failed = answer.degraded.includes("model_unavailable");
    return section(
      t("answer"),
      {},
      h("p", {}, t(failed ? "answer.failed" : answer.table?.rows.length ? "answer.table" : answer.status === "nothing_found" ? "answer.nothing" : answer.status === "no_retrieval_needed" ? "answer.small_talk" : "answer.passages", { n: passagesOf(answer).length })),
      failed ? null : h("p", { class: "soft" }, t("answer.no_model"), " ", h("code", {}, "SIGNALBOX_LLM"), t("answer.no_model_end")),
    );
  }
  const checked = answer.faithfulness === null ? null : t(`answer.checked.${answer.checked_by}`, { share: number(answer.faithfulness * 100) });
  const tokens = answer.usage.prompt_tokens ? t("answer.usage", { model: answer.model, into: number(answer.usage.prompt_tokens), out: number(answer.usage.completion_tokens) }) : answer.model;
  return section(
    t("answer"),
    {},
    h("div", { class: "answer-text" }, answerText(answer)),
    answer.answered ? null : h("p", { class: "notice warning" }, t("answer.not_held")),
    h("p", { class: "soft" }, [tokens, checked].filter(Boolean).join(" · ")),
    answer.citations.length ? h("ol", { class: "sources" }, answer.citations.map((one) => sourceItem(one, answer))) : null,
  );
}

function sourceItem(citation, answer) {
  return h(
    "li",
    {},
    citationButton(citation, answer.hits),
    " ",
    citation.title || citation.document_id,
    [citation.heading, placeText(citation.place)].filter(Boolean).map((one) => h("span", { class: "soft" }, ` · ${one}`)),
    citation.url ? [" ", outward(citation.url, t("citation.source"))] : null,
  );
}

/** Returns the hits without the calculated table, which is shown separately. */
const passagesOf = (answer) => answer.hits.filter((one) => !(answer.table && one.document_id.startsWith("table:")));

export function passages(answer) {
  const hits = passagesOf(answer);
  if (!hits.length) return null;
  const cited = new Map(answer.citations.map((one) => [one.chunk_id, one]));
  const weak = answer.status === "weak" ? h("p", { class: "notice warning" }, t("passages.weak")) : null;
  const all = answer.total != null ? t("passages.total", { n: number(hits.length), all: number(answer.total) }) : "";
  return section(t("passages"), {}, weak, h("p", { class: "soft" }, all), h("ol", { class: "hits" }, hits.map((hit) => passage(hit, cited.get(hit.id), answer))));
}

const relevance = (hit) => (typeof hit.relevance === "number" ? t("passage.relevance", { relevance: score(hit.relevance) }) : null);

function passage(hit, citation, answer) {
  const text = h("div", { class: "text clamped" }, marked(hit.text, hit.highlights));
  const more = h(
    "button",
    { class: "link small", type: "button", hidden: true, "aria-expanded": "false", onclick: () => showAll(text.classList.contains("clamped")) },
    t("passage.more"),
  );
  const showAll = (all) => {
    text.classList.toggle("clamped", !all);
    more.setAttribute("aria-expanded", String(all));
    more.textContent = t(all ? "passage.less" : "passage.more");
  };
  new ResizeObserver(() => {
    if (text.classList.contains("clamped")) more.hidden = text.scrollHeight <= text.clientHeight;
  }).observe(text);
  return h(
    "li",
    { class: "hit" },
    h(
      "div",
      { class: "hit-head" },
      h("span", { class: "hit-rank", "aria-hidden": "true" }, String(hit.rank)),
      h("h3", {}, h("button", { class: "link", type: "button", onclick: () => (citation ? openCitation(citation, answer.hits) : openHit(hit)) }, hit.title || hit.document_id)),
      citation ? h("span", { class: "soft" }, t("passage.cited", { n: citation.n })) : null,
    ),
    h("p", { class: "soft" }, [hit.document_id, placeText(hit.place), hit.sources.map(sourceName).join(" + "), t("passage.score", { score: score(hit.score) }), relevance(hit)].filter(Boolean).join(" · "), hit.url ? [" · ", outward(hit.url)] : null),
    text,
    more,
    h("details", {}, h("summary", {}, t("passage.metadata")), metadataList(hit.metadata) ?? h("p", { class: "soft" }, t("passage.no_metadata"))),
    markRight(answer, hit),
  );
}

/** @param {{columns: string[], rows: any[][], sql: string}|null} table */
export function tableCard(table) {
  if (!table) return null;
  const rows = table.rows.slice(0, 100);
  return section(
    t("table"),
    {},
    bars(table),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": t("table") },
      h(
        "table",
        { class: "result" },
        h("thead", {}, h("tr", {}, table.columns.map((one, place) => h("th", { scope: "col", class: rows.length && rows.every((row) => typeof row[place] === "number") ? "number" : "" }, one)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: typeof cell === "number" ? "number" : "" }, valueText(cell)))))),
      ),
    ),
    h("p", { class: "soft" }, counted("rows", table.count ?? table.rows.length)),
    h("details", {}, h("summary", {}, t("table.sql")), h("pre", {}, table.sql)),
  );
}

/** Returns a table as bars if every row ends in a number >= 0; null otherwise. */
function bars({ columns, rows }) {
  const measure = columns.length - 1;
  const shown = rows.slice(0, MOST_BARS);
  if (measure < 1 || shown.length < 2 || !shown.every((row) => typeof row[measure] === "number" && row[measure] >= 0)) return null;
  const most = Math.max(...shown.map((row) => row[measure]), 1e-9);
  const title = columns.indexOf("title");
  const label = (row) => (title >= 0 ? valueText(row[title]) : row.slice(0, measure).map(valueText).join(" · "));
  return h("ul", { class: "values chart", "aria-label": t("table.bars", { name: columns[measure] }) }, shown.map((row) => valueBar(label(row), row[measure], most)));
}

/** Returns the marker before every passage of a prompt; null if there is none. */
function fenceOf(prompt, citations) {
  const marks = new Set(prompt.match(/-----[0-9a-f]{12}-----/g));
  return [...marks].find((one) => citations.every(({ n }) => prompt.includes(`${one} [${n}] `))) ?? null;
}

/** Shows the final prompt. Numbers after a marker open the cited document; numbers inside a passage's text do not. */
export function promptCard(answer) {
  return section(
    t("prompt"),
    {},
    h("p", { class: "soft" }, t("prompt.said", { tokens: number(answer.tokens) })),
    h("details", {}, h("summary", {}, t("prompt.show")), answer.messages.map((one) => message(one, answer))),
  );
}

function message({ role, content }, answer) {
  return h("div", { class: "message" }, h("h3", {}, t(`role.${role}`)), h("pre", { tabindex: 0, role: "region", "aria-label": t(`role.${role}`) }, role === "user" ? fenced(content, answer) : content));
}

function fenced(content, answer) {
  const fence = fenceOf(content, answer.citations);
  if (!fence || !answer.citations.length) return [content];
  const made = [];
  let last = 0;
  for (const citation of answer.citations) {
    const head = `${fence} `;
    const at = content.indexOf(`${head}[${citation.n}] `, last);
    if (at < 0) continue;
    made.push(content.slice(last, at + head.length), citationButton(citation, answer.hits));
    last = at + head.length + `[${citation.n}]`.length;
  }
  return [...made, content.slice(last)];
}
