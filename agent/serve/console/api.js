// Client of the service's HTTP API.

const KEY = "signalbox.key";
const PRINCIPALS = "signalbox.principals";
/** Maximum size of a request in bytes, as in the service. */
export const MOST_BYTES = 8 * 1024 * 1024;

/** An error of a request: an RFC 9457 problem, or a failed connection. */
export class Problem extends Error {
  constructor({ status = 0, title = "", detail = "", errors = [], retryAfter = null } = {}) {
    super(detail || title);
    Object.assign(this, { status, title, detail, errors, retryAfter });
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => {
    principals.set("");
    return value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY);
  },
};

/** The users and groups to read as, separated by commas; "" for those of the key. Only this tab keeps them. */
export const principals = {
  get: () => sessionStorage.getItem(PRINCIPALS) ?? "",
  set: (value) => (value ? sessionStorage.setItem(PRINCIPALS, value) : sessionStorage.removeItem(PRINCIPALS)),
};

let whenRefused = () => {};
/** Calls `handler` whenever the service requires an API key. */
export function onRefused(handler) {
  whenRefused = handler;
}

function headers(more = {}) {
  const held = key.get();
  return held ? { ...more, Authorization: `Bearer ${held}` } : more;
}

function problemOf(status, text, retryAfter) {
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy answered instead of the service, in its own format.
  }
  if (status === 401) whenRefused();
  return new Problem({ ...body, status, retryAfter });
}

/** Sends a request. Requests that only read (`reads`) are made for the principals that the user chose. */
async function send(path, { method = "GET", body, signal, reads = false } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: headers({
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(reads && principals.get() ? { "X-Signalbox-Principals": principals.get() } : {}),
      }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: "unreachable" });
  }
  if (!response.ok) throw problemOf(response.status, await response.text(), response.headers.get("Retry-After"));
  return response;
}

async function json(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

/** Yields the events of a stream as they arrive: {event, data} with parsed data. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value.replaceAll("\r\n", "\n");
      let end;
      while ((end = held.indexOf("\n\n")) >= 0) {
        const lines = held.slice(0, end).split("\n");
        held = held.slice(end + 2);
        const of = (name) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
        if (of("data").length) yield { event: of("event")[0] ?? "message", data: JSON.parse(of("data").join("\n")) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const part = encodeURIComponent;
/** Encodes a document id or file name for a path; its slashes stay slashes. */
const path = (text) => text.split("/").map(part).join("/");

export const api = {
  collections: async () => (await json("/v1/collections", { reads: true })).collections,
  collection: (name) => json(`/v1/collections/${part(name)}`, { reads: true }),
  declare: (name, schema) => json(`/v1/collections/${part(name)}`, { method: "PUT", body: schema }),
  deleteCollection: (name) => json(`/v1/collections/${part(name)}`, { method: "DELETE" }),
  document: (collection, id) => json(`/v1/documents/${part(collection)}/${path(id)}`, { reads: true }),
  traces: async (limit) => (await json(`/v1/traces?limit=${limit}`, { reads: true })).traces,
  trace: (id) => json(`/v1/traces/${part(id)}`, { reads: true }),
  replay: (id, changes) => json(`/v1/traces/${part(id)}/replay`, { method: "POST", body: { changes }, reads: true }),
  sources: async () => (await json("/v1/sources", { reads: true })).sources,
  tenant: () => json("/v1/tenant"),
  feedback: (opinion) => json("/v1/feedback", { method: "POST", body: opinion, reads: true }),
  jobs: async () => (await json("/v1/jobs")).jobs,
  job: (id) => json(`/v1/jobs/${part(id)}`),
  syncs: async () => (await json("/v1/syncs")).syncs,
  runSync: (id) => json(`/v1/syncs/${part(id)}/run`, { method: "POST" }),
  retryJob: (id) => json(`/v1/jobs/${part(id)}/retry`, { method: "POST" }),
};

/**
 * Asks a question and streams the answer.
 * @param {object} request the body of POST /v1/ask
 * @param {(text: string) => void} onText called with every piece of the answer
 * @returns {Promise<object>} the whole answer
 */
export async function ask(request, onText, signal) {
  const response = await send("/v1/ask", { method: "POST", body: request, signal, reads: true });
  for await (const { event, data } of events(response)) {
    if (event === "text") onText(data);
    else if (event === "answer") return data;
    else if (event === "error") throw new Problem(data);
  }
  throw new Problem({ title: "unreachable" });
}

/**
 * Uploads one file.
 * @param {(share: number) => void} onProgress called with the share sent so far, 0 to 1
 * @returns {Promise<object>} the job that reads it
 */
export function upload(collection, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/v1/files/${part(collection)}/${path(file.name)}?wait=false`);
    for (const [name, value] of Object.entries(headers({ "Content-Type": "application/octet-stream" }))) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onProgress(event.loaded / event.total));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(JSON.parse(request.responseText));
      else reject(problemOf(request.status, request.responseText, request.getResponseHeader("Retry-After")));
    });
    request.addEventListener("error", () => reject(new Problem({ title: "unreachable" })));
    request.send(file);
  });
}
