// Feedback on an answer: whether it was right, and which documents were. `signalbox eval collect` reads it.

import { api } from "./api.js";
import { h, replace, section } from "./dom.js";
import { t } from "./i18n.js";

const RIGHT = 10;
const WRONG = 0;

/** Sends feedback; `told` shows the outcome to the user. */
async function send(answer, opinion, told) {
  try {
    await api.feedback({ trace_id: answer.trace_id, ...opinion });
    replace(told, t("feedback.kept"));
    return true;
  } catch (problem) {
    if (!problem.errors) throw problem;
    replace(told, t("feedback.failed"));
    return false;
  }
}

/** Returns a card that asks whether the answer was right. */
export function verdict(answer) {
  const told = h("span", { class: "soft", role: "status" });
  const choices = [[t("feedback.right"), RIGHT], [t("feedback.wrong"), WRONG]].map(([text, points]) => {
    const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => choose(button, points) }, text);
    return button;
  });
  async function choose(button, points) {
    if (await send(answer, { score: points }, told)) choices.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
  }
  return section(t("feedback.question"), {}, h("p", { class: "soft" }, t("feedback.why")), h("div", { class: "row" }, choices, told));
}

/** Returns a button that marks the document of a hit as right. */
export function markRight(answer, hit) {
  const told = h("span", { class: "soft", role: "status" });
  const label = t("feedback.mark_title", { title: hit.title || hit.document_id });
  const button = h("button", { class: "link small", type: "button", "aria-label": label, onclick: mark }, t("feedback.mark"));
  async function mark() {
    if (await send(answer, { document_ids: [hit.document_id] }, told)) button.hidden = true;
  }
  return h("p", {}, button, told);
}
