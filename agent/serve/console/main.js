// The page: navigation bar, routing by the address, language, colours and API key.

import { askView } from "./ask.js";
import { key, onRefused } from "./api.js";
import { collectionsView } from "./collections.js";
import { dialog, h, replace } from "./dom.js";
import { currentLanguage, setLanguage, t } from "./i18n.js";
import { jobsView } from "./jobs.js";
import { sourcesView } from "./sources.js";
import { tracesView } from "./traces.js";

const THEME = "signalbox.theme";
const VIEWS = { ask: askView, collections: collectionsView, sources: sourcesView, jobs: jobsView, traces: tracesView };
const main = document.getElementById("main");
let leave = null;
let shown = null;

/** Parses "#/traces/ID?a=b" into view, id and parameters. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: Object.hasOwn(VIEWS, name) ? name : "ask", id: rest.length ? decoded(rest.join("/")) : null, parameters: new URLSearchParams(query) };
}

/** Decodes a part of the address; returns it unchanged if it is not valid percent-encoding. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const { name, id, parameters } = place();
  leave?.();
  leave = VIEWS[name](main, parameters, id) ?? null;
  document.title = `${t(`nav.${name}`)} · signalbox`;
  drawBar(name);
  if (shown !== null && shown !== name) window.scrollTo(0, 0);
  shown = name;
}

function drawBar(current) {
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-CN" : "en";
  document.getElementById("skip").textContent = t("nav.skip");
  const dark = isDark();
  const other = currentLanguage() === "zh" ? "en" : "zh";
  replace(
    document.getElementById("bar"),
    h("a", { class: "brand", href: "#/ask" }, h("img", { src: "/console/favicon.svg", alt: "", width: 22, height: 22 }), "signalbox"),
    h("nav", { "aria-label": t("nav.views") }, Object.keys(VIEWS).map((name) => h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, t(`nav.${name}`)))),
    h(
      "div",
      { class: "tools" },
      h("button", { class: "quiet", type: "button", lang: other === "zh" ? "zh-CN" : "en", id: "language", onclick: () => { setLanguage(other); show(); document.getElementById("language").focus(); } }, other === "zh" ? "中文" : "English"),
      h("button", { class: "quiet icon", type: "button", id: "theme", "aria-label": t(dark ? "theme.light" : "theme.dark"), title: t(dark ? "theme.light" : "theme.dark"), onclick: () => { setTheme(dark ? "light" : "dark"); document.getElementById("theme").focus(); } }, dark ? "☀" : "☾"),
      h("button", { class: "quiet", type: "button", id: "key", onclick: () => askKey() }, t(key.get() ? "key.held" : "key")),
    ),
  );
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  localStorage.setItem(THEME, theme);
  document.documentElement.dataset.theme = theme;
  drawBar(place().name);
}

/** Asks for the API key. Only this tab keeps it, until it is closed. */
function askKey(refused = false) {
  if (document.querySelector("dialog.key")) return;
  const input = h("input", { id: "key-input", type: "password", autocomplete: "off", spellcheck: "false", value: key.get() ?? "" });
  const save = (value) => {
    key.set(value);
    box.close();
    show();
  };
  const box = dialog(
    { title: t("key.title"), closeLabel: t("close") },
    h("p", {}, t(refused ? "key.refused" : "key.said")),
    h(
      "form",
      { onsubmit: (event) => { event.preventDefault(); save(input.value.trim()); } },
      h("label", { class: "stacked", for: "key-input" }, t("key"), input),
      h("div", { class: "row end" }, key.get() ? h("button", { type: "button", onclick: () => save("") }, t("key.forget")) : null, h("button", { class: "primary", type: "submit" }, t("key.use"))),
    ),
  );
  box.classList.add("key");
  input.focus();
}

const kept = localStorage.getItem(THEME);
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawBar(place().name));
window.addEventListener("hashchange", show);
document.getElementById("skip").addEventListener("click", (event) => {
  // Following the link would change the view.
  event.preventDefault();
  main.focus();
});
onRefused(() => askKey(true));
show();
