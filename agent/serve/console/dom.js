// Creates elements without parsing HTML: a document's text only becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && typeof value !== "string" && typeof value !== "number") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Creates an element: h("a", {class: "x", onclick: f}, "text", child). Empty children are left out. */
export function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

/** As `h`, for SVG. */
export function s(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties ?? {})) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Returns an external link, or only the text if the address is not safe to follow. */
export function outward(url, text = url) {
  let parsed = null;
  try {
    parsed = new URL(url);
  } catch {
    return document.createTextNode(text);
  }
  if (parsed.protocol !== "https:" && parsed.protocol !== "http:") return document.createTextNode(text);
  return h("a", { href: parsed.href, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** Splits a text at spans. Positions count characters, as in the service, not UTF-16 units. */
export function pieces(text, spans) {
  const characters = Array.from(text);
  const made = [];
  let last = 0;
  for (const [start, end] of [...spans].sort((one, other) => one[0] - other[0])) {
    const from = Math.max(start, last);
    const to = Math.min(end, characters.length);
    if (to <= from) continue;
    if (from > last) made.push({ text: characters.slice(last, from).join(""), inside: false });
    made.push({ text: characters.slice(from, to).join(""), inside: true });
    last = to;
  }
  if (last < characters.length) made.push({ text: characters.slice(last).join(""), inside: false });
  return made;
}

/** Returns the text with its spans in <mark> elements. */
export function marked(text, spans) {
  return pieces(text, spans).map((one) => (one.inside ? h("mark", {}, one.text) : one.text));
}

/** Shows a short message, also to screen readers, without moving the layout. */
export function notify(text, kind = "info") {
  const toast = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), 6000);
}

/** Opens a modal dialog with a heading. A button or Esc closes it and returns the focus. */
export function dialog({ title, closeLabel, wide = false }, ...children) {
  const before = document.activeElement;
  const close = h("button", { class: "quiet icon", type: "button", "aria-label": closeLabel, onclick: () => box.close() }, "✕");
  const box = h(
    "dialog",
    { class: wide ? "wide" : "", "aria-label": title },
    h("div", { class: "dialog-head" }, h("h2", {}, title), close),
    h("div", { class: "dialog-body" }, children),
  );
  box.addEventListener("close", () => {
    box.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  box.addEventListener("click", (event) => {
    if (event.target === box) box.close();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

/** Returns a section labelled by its heading for screen readers. */
export function section(title, properties, ...children) {
  const id = `s-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
  return h(
    "section",
    { class: "card", "aria-labelledby": id, ...properties },
    h("h2", { id }, title),
    children,
  );
}
