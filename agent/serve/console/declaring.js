// Dialogs that declare a collection's names for a document, and a field's unit and other names.

import { api } from "./api.js";
import { dialog, h, notify, replace } from "./dom.js";
import { t } from "./i18n.js";
import { problemBox } from "./phrases.js";

const words = (text) => text.split(/[,，、\n]/).map((one) => one.trim()).filter(Boolean);

/** Opens a form in a dialog. On submit, declares the result of `schema()` and calls `done`. */
function declaring(title, name, inputs, schema, done) {
  const said = h("div", { role: "alert" });
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await api.declare(name, schema());
          box.close();
          notify(t("declare.done", { name }));
          done();
        } catch (problem) {
          if (!problem.errors) throw problem;
          replace(said, problemBox(problem, () => replace(said)));
        }
      },
    },
    inputs,
    said,
    h("div", { class: "row end" }, h("button", { type: "button", onclick: () => box.close() }, t("cancel")), h("button", { class: "primary", type: "submit" }, t("declare.save"))),
  );
  const box = dialog({ title, closeLabel: t("close") }, form);
}

const labelled = (text, input) => h("label", { class: "stacked" }, text, input);

export function declareRecords(found, done) {
  const input = h("input", { type: "text", value: found.records.join(", "), autofocus: true, placeholder: "upload, uploads, 上传" });
  declaring(t("declare.records"), found.name, [h("p", { class: "soft" }, t("declare.records_said")), labelled(t("declare.records_label"), input)], () => ({ records: words(input.value) }), done);
}

export function declareField(found, field, done) {
  const description = h("input", { type: "text", value: field.description, autofocus: true });
  const unit = h("input", { type: "text", value: field.unit ?? "", placeholder: "kb, min, usd, %", maxlength: 20 });
  const lines = Object.entries(field.aliases).map(([value, names]) => `${value}: ${names.join(", ")}`);
  const aliases = h("textarea", { rows: 5, placeholder: "infrastructure: infra, 基础设施" }, lines.join("\n"));
  const named = ["string", "boolean"].includes(field.item);
  const inputs = [
    labelled(t("declare.description"), description),
    field.item === "number" ? labelled(t("declare.unit"), unit) : null,
    named ? labelled(t("declare.aliases"), aliases) : null,
  ];
  const schema = () => {
    const spec = { type: field.type, item: field.item, description: description.value.trim() };
    if (field.separator) spec.separator = field.separator;
    if (unit.value.trim()) spec.unit = unit.value.trim();
    if (named) spec.aliases = aliasesOf(aliases.value);
    return { fields: { [field.name]: spec } };
  };
  declaring(t("declare.field_label", { name: field.name }), found.name, inputs, schema, done);
}

/** Parses aliases, one line per value: "infrastructure: infra, 基础设施". */
function aliasesOf(text) {
  const lines = text.split("\n").map((line) => line.match(/^(.+?)[:：](.+)$/)).filter(Boolean);
  return Object.fromEntries(lines.map(([, value, names]) => [value.trim(), words(names)]));
}
