// The Collections view: show and declare fields, upload files, delete a collection.

import { api } from "./api.js";
import { dialog, h, notify, replace, section } from "./dom.js";
import { number, t } from "./i18n.js";
import { declareField, declareRecords } from "./declaring.js";
import { counted, empty, problemBox, valueBar, valueText, waiting } from "./phrases.js";
import { uploader } from "./upload.js";

export function collectionsView(root, _parameters, name) {
  const list = h("div", {}, waiting());
  replace(
    root,
    h("h1", {}, name ? h("a", { href: "#/collections" }, t("nav.collections")) : t("nav.collections"), name ? ` / ${name}` : null),
    list,
    uploader(name ?? "", load),
  );

  async function load() {
    try {
      replace(list, name ? catalogue(await api.collection(name)) : await cards());
    } catch (problem) {
      if (!problem.errors) throw problem;
      replace(list, problemBox(problem, load));
    }
  }

  async function cards() {
    const found = await api.collections();
    if (!found.length) return h("div", { class: "card" }, empty(t("collections.none"), h("p", {}, t("collections.none_how"))));
    return h("ul", { class: "grid" }, found.map((one) => h(
      "li",
      { class: "card" },
      h("h2", {}, h("a", { href: `#/collections/${encodeURIComponent(one.name)}` }, one.name)),
      h("p", {}, counted("documents", one.documents), " · ", counted("chunks", one.chunks)),
      h("p", { class: "soft" }, Object.keys(one.languages ?? {}).join(", ")),
      h("p", {}, h("a", { href: `#/ask?${new URLSearchParams({ collection: one.name })}` }, t("collections.ask"))),
    )));
  }

  function catalogue(found) {
    return [
      section(
        t("collections.about"),
        {},
        h("p", {}, counted("documents", found.documents), " · ", counted("chunks", found.chunks), " · ", t("collections.embedder", { name: found.embedder ?? "–" })),
        h("p", { class: "soft" }, Object.entries(found.languages).map(([language, n]) => `${language} ${number(n)}`).join(" · ")),
        recordsLine(found),
        found.description ? h("p", { class: "soft" }, t(found.draft ? "collections.draft" : "collections.described", { text: found.description })) : null,
        h(
          "div",
          { class: "row" },
          h("button", { type: "button", onclick: () => declareRecords(found, load) }, t("declare.records")),
          h("button", { class: "danger", type: "button", onclick: () => confirmDelete(found) }, t("collections.delete")),
        ),
      ),
      section(
        t("collections.fields"),
        {},
        found.fields.length
          ? h("ul", { class: "fields" }, found.fields.map((field) => fieldItem(field, () => declareField(found, field, load))))
          : empty(t("collections.no_fields"), h("p", {}, t("collections.no_fields_how"))),
      ),
    ];
  }

  function confirmDelete(found) {
    const box = dialog(
      { title: t("collections.delete_title", { name: found.name }), closeLabel: t("close") },
      h("p", {}, counted("collections.delete_said", found.documents)),
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", autofocus: true, onclick: () => box.close() }, t("cancel")),
        h("button", {
          class: "danger", type: "button",
          onclick: async () => {
            box.close();
            try {
              await api.deleteCollection(found.name);
              notify(t("collections.deleted", { name: found.name }));
              location.hash = "#/collections";
            } catch (problem) {
              if (!problem.errors) throw problem;
              replace(list, problemBox(problem, load));
            }
          },
        }, t("collections.delete_yes")),
      ),
    );
  }

  load();
}

/** Returns the names for a document: the declared ones and the derived ones. */
function recordsLine(found) {
  const said = [];
  if (found.records.length) said.push(t("records.declared", { words: found.records.join(", ") }));
  if (found.derived_records.length) said.push(t("records.derived", { words: found.derived_records.join(", ") }));
  return said.length ? h("p", { class: "records" }, said.join(" · ")) : null;
}

function unitText(field) {
  if (field.unit) return t("field.unit", { unit: field.unit });
  return field.derived_unit ? t("field.derived_unit", { unit: field.derived_unit }) : null;
}

function fieldItem(field, declare) {
  const most = Math.max(1, ...field.top.map(([, count]) => count));
  const isRange = field.min !== null && field.min !== undefined;
  return h(
    "li",
    { class: "field" },
    h("h3", {}, h("code", {}, field.name), h("span", { class: "tag" }, t(`type.${field.type}`)), field.item !== field.type ? h("span", { class: "tag" }, t(`type.${field.item}`)) : null),
    field.description ? h("p", {}, field.description) : null,
    h("p", { class: "soft" }, [counted("field.documents", field.documents), counted("field.distinct", field.distinct), isRange ? t("field.range", { min: valueText(field.min), max: valueText(field.max) }) : null, unitText(field)].filter(Boolean).join(" · ")),
    field.names.length ? h("p", { class: "soft" }, t("field.names", { words: field.names.join(", ") })) : null,
    h("button", { class: "quiet", type: "button", "aria-label": t("declare.field_label", { name: field.name }), onclick: declare }, t("declare.field")),
    isRange ? null : h("ul", { class: "values", "aria-label": t("field.top") }, field.top.map(([value, count]) => valueBar(value, count, most))),
  );
}
