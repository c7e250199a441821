// The Ask view: conversation, question and filters above, the result below.

import { answerCard, openHit, passages, promptCard, tableCard } from "./answer.js";
import { api, ask, principals } from "./api.js";
import { h, replace, section } from "./dom.js";
import { verdict } from "./feedback.js";
import { fieldsOf, filterChips, filterForm } from "./filters.js";
import { t } from "./i18n.js";
import { counted, empty, isSame, joined, partsOf, problemBox } from "./phrases.js";
import { ranking } from "./ranking.js";
import { route } from "./route.js";
import { understood } from "./understood.js";

const TURNS_SENT = 40;
const TOP_K = [5, 10, 20, 50];

/** Kept while the user visits other views; lost when the page is closed. */
const state = {
  question: "",
  collection: "",
  filters: [],
  topK: 10,
  intent: "",
  /** The turns before the last question. */
  history: [],
  /** The last request with its answer; null before the first one. */
  last: null,
};

/** Returns the request as URL parameters, so that the address can be shared. */
function parametersOf() {
  const said = new URLSearchParams();
  if (state.question) said.set("q", state.question);
  if (state.collection) said.set("collection", state.collection);
  if (state.filters.length) said.set("filter", JSON.stringify(joined(state.filters)));
  return said;
}

const addressOf = () => (parametersOf().size ? `#/ask?${parametersOf()}` : "#/ask");

/** Fills the form from the address. The question is not sent until the user does so: a model may cost money. */
function readAddress(parameters) {
  if (!parameters.size || parameters.toString() === parametersOf().toString()) return;
  state.question = parameters.get("q") ?? state.question;
  state.collection = parameters.get("collection") ?? "";
  try {
    state.filters = partsOf(JSON.parse(parameters.get("filter") ?? "null"));
  } catch {
    state.filters = [];
  }
  state.last = null;
}

export function askView(root, parameters) {
  readAddress(parameters);
  let catalogues = [];
  let running = null;

  const question = h("textarea", {
    id: "question", rows: 2, maxlength: 8000, placeholder: t("ask.placeholder"), "aria-label": t("ask.question"), "aria-describedby": "ask-hint",
    oninput: () => { state.question = question.value; },
    onkeydown: (event) => {
      // Ignore the Enter that confirms a character of an input method.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      begin();
    },
  });
  question.value = state.question;
  const submit = h("button", { class: "primary", type: "submit" }, t("ask.ask"));
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, t("ask.stop"));
  const collection = h("select", {
    id: "collection",
    onchange: () => { state.collection = collection.value; state.filters = []; showFilters(); loadFields(); },
  });
  const topK = h("select", { id: "top-k", onchange: () => { state.topK = Number(topK.value); } }, TOP_K.map((one) => h("option", { value: one, selected: one === state.topK }, String(one))));
  const intent = h("select", { id: "intent", onchange: () => { state.intent = intent.value; } }, ["", "auto", "rules", "llm", "off"].map((one) => h("option", { value: one, selected: one === state.intent }, t(`intent.${one || "default"}`))));
  // Header values are sent as plain ASCII.
  const readAs = h("input", {
    id: "principals", type: "text", value: principals.get(), placeholder: "user:7, group:legal", pattern: "[ -~]*", title: t("ask.principals_said"), autocomplete: "off", spellcheck: "false",
    onchange: () => { if (readAs.reportValidity()) changeReader(readAs.value.trim()); },
  });
  const reader = h("label", { hidden: true }, t("ask.principals"), readAs);
  const chips = h("ul", { class: "chips", "aria-label": t("ask.filters") });
  const adder = h("div", {});
  const addFilter = h("button", { class: "quiet", type: "button", "aria-expanded": "false", onclick: () => toggleAdder() }, t("filter.new"));
  const turns = h("div", {});
  const output = h("div", { class: "output" });

  replace(
    root,
    h("h1", { class: "hidden" }, t("nav.ask")),
    h(
      "form",
      { class: "card ask", role: "search", "aria-label": t("ask.question"), onsubmit: (event) => { event.preventDefault(); begin(); } },
      turns,
      h("div", { class: "ask-row" }, question, h("div", { class: "ask-buttons" }, submit, stop)),
      h(
        "div",
        { class: "options" },
        h("label", {}, t("ask.collection"), collection),
        h("label", {}, t("ask.top_k"), topK),
        h("label", {}, t("ask.intent"), intent),
        reader,
        addFilter,
      ),
      chips,
      h("p", { class: "soft hint", id: "ask-hint" }, t("ask.hint")),
    ),
    adder,
    output,
  );

  function toggleAdder(open = !adder.hasChildNodes()) {
    addFilter.setAttribute("aria-expanded", String(open));
    const fields = fieldsOf(catalogues);
    if (!open) replace(adder);
    else if (!fields.length) replace(adder, h("div", { class: "card" }, empty(t("filter.none"), h("p", {}, t("filter.none_why")))));
    else {
      replace(adder, h("div", { class: "card" }, filterForm(fields, (filter) => {
        if (!state.filters.some((one) => isSame(one, filter))) state.filters.push(filter);
        showFilters();
        toggleAdder(false);
        addFilter.focus();
        if (state.last) again();
      })));
      adder.querySelector("select").focus();
    }
  }

  function showFilters() {
    drawFilters();
    history.replaceState(null, "", addressOf());
  }

  function drawFilters() {
    replace(chips, filterChips(state.filters, (filter) => {
      state.filters = state.filters.filter((one) => !isSame(one, filter));
      showFilters();
      if (state.last) again();
    }));
  }

  function showTurns() {
    const asked = state.history.filter((turn) => turn.role === "user");
    replace(turns, asked.length
      ? h(
          "details",
          { class: "turns" },
          h("summary", {}, counted("ask.turns", asked.length)),
          h("ol", {}, state.history.map((turn) => h("li", { class: turn.role }, h("span", { class: "soft" }, t(`role.${turn.role}`)), " ", turn.content))),
        )
      : null,
      asked.length ? h("button", { class: "quiet", type: "button", onclick: () => { state.history = []; state.last = null; showTurns(); replace(output); question.focus(); } }, t("ask.anew")) : null,
    );
  }

  /** Reads as somebody else: what was asked before is not shown or sent any more. */
  function changeReader(said) {
    if (said === principals.get()) return;
    principals.set(said);
    running?.abort();
    // The collection may have been chosen because no other was seen.
    Object.assign(state, { collection: "", history: [], last: null });
    showTurns();
    replace(output);
    return loadCollections();
  }

  async function loadReader() {
    reader.hidden = !(await api.tenant()).caller.trusted;
  }

  /** Sends a new question; the last one and its answer become part of the conversation. */
  function begin() {
    const text = question.value.trim();
    if (!text) return question.focus();
    if (!reader.hidden) {
      if (!readAs.reportValidity()) return undefined;
      changeReader(readAs.value.trim());
    }
    const { last } = state;
    if (last?.answer && last.request.query !== text) {
      state.history.push({ role: "user", content: last.request.query });
      // Passages shown in place of an answer are not a turn of the conversation.
      if (last.answer.model) state.history.push({ role: "assistant", content: last.answer.answer });
      state.history = state.history.slice(-TURNS_SENT);
      showTurns();
    }
    return put(text, last?.request.query === text ? (last.request.ignore ?? []) : []);
  }

  /** Repeats the question with changed filters. */
  const again = (ignore = state.last.request.ignore ?? []) => put(state.last.request.query, ignore);

  async function put(text, ignore) {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    state.question = text;
    question.value = text;
    history.replaceState(null, "", addressOf());
    const request = { query: text, top_k: state.topK, explain: true };
    if (state.history.length) request.messages = [...state.history];
    if (state.collection) request.collection = state.collection;
    if (state.filters.length) request.filter = joined(state.filters);
    if (ignore.length) request.ignore = ignore;
    if (state.intent) request.intent = state.intent;
    state.last = { request, answer: null };
    const streamed = h("div", { class: "answer-text streaming" });
    const live = section(t("answer"), { class: "card", "aria-busy": "true" }, h("p", { class: "soft waiting", role: "status" }, t("ask.searching")), streamed);
    output.classList.add("stale");
    submit.disabled = true;
    stop.hidden = false;
    let began = false;
    try {
      const answer = await ask(request, (piece) => {
        if (!began) replace(output, live);
        began = true;
        output.classList.remove("stale");
        streamed.append(piece);
      }, mine.signal);
      if (running !== mine) return;
      state.last = { request, answer };
      showAnswer();
    } catch (problem) {
      if (running !== mine) return;
      state.last = null;
      if (problem.name === "AbortError") replace(output, h("p", { class: "soft" }, t("ask.stopped")));
      else if (problem.errors) replace(output, problemBox(problem, () => put(text, ignore)));
      else throw problem;
    } finally {
      if (running === mine) {
        running = null;
        submit.disabled = false;
        stop.hidden = true;
        output.classList.remove("stale");
      }
    }
  }

  function showAnswer() {
    const { answer, request } = state.last;
    if (answer.refusal) return replace(output, answerCard(answer));
    const trace = answer.explanation;
    const actions = {
      remove: (filter, from) => {
        if (from !== "caller") return again([...(request.ignore ?? []), filter]);
        state.filters = state.filters.filter((one) => !isSame(one, filter));
        showFilters();
        return again();
      },
      restore: (filter) => again(request.ignore.filter((one) => !isSame(one, filter))),
    };
    replace(
      output,
      understood(trace, actions),
      tableCard(answer.table),
      answerCard(answer),
      passages(answer),
      verdict(answer),
      route(trace),
      ranking(trace, (hit) => openHit(answer.hits.find((one) => one.id === hit.id))),
      promptCard(answer),
      h("p", { class: "soft" }, h("a", { href: `#/traces/${answer.trace_id}` }, t("ask.trace"))),
    );
  }

  async function loadCollections() {
    try {
      const found = await api.collections();
      const names = found.map((one) => one.name);
      if (!names.includes(state.collection)) state.collection = names.length === 1 ? names[0] : "";
      replace(collection, h("option", { value: "" }, t("ask.everything")), names.map((one) => h("option", { value: one, selected: one === state.collection }, one)));
      if (!names.length) replace(output, h("div", { class: "card" }, empty(t("ask.no_documents"), h("p", {}, h("a", { href: "#/collections" }, t("ask.add_documents"))))));
      else if (!state.last) replace(output, h("div", { class: "card" }, empty(t("ask.begin"), h("p", {}, t("ask.begin_how")))));
      await Promise.all([loadFields(names), loadReader()]);
    } catch (problem) {
      if (!problem.errors) throw problem;
      replace(output, problemBox(problem, loadCollections));
    }
  }

  async function loadFields(names = [...collection.options].map((one) => one.value).filter(Boolean)) {
    const wanted = state.collection ? [state.collection] : names.slice(0, 10);
    catalogues = await Promise.all(wanted.map(api.collection));
    if (adder.hasChildNodes()) toggleAdder(true);
    drawFilters(); // the user may have followed a link meanwhile
  }

  showTurns();
  showFilters();
  if (state.last?.answer) showAnswer();
  loadCollections();
  question.focus();
  return () => running?.abort();
}
