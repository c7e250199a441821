// Draws the route of a question as a track: a station per stage, a loop with a signal per searched source.

import { h, s, section } from "./dom.js";
import { number, reasonText, span, t } from "./i18n.js";
import { sourceName, statusName, counted } from "./phrases.js";

const LINE_X = 14;
const LOOP_X = 38;
const TEXT_X = 60;
const STATION = 44;
const STAGES = ["scope", "intent", "search", "fusion", "loop", "rerank", "page", "assemble", "answer"];
const LANE = 56;
// Width of a letter of a name, in pixels.
const BOLD = 8.5;

/** Returns the diagram with its caption; redrawn when its width changes. */
export function route(trace) {
  const frame = h("div", { class: "route" });
  const rows = rowsOf(trace);
  let drawn = 0;
  const draw = () => {
    const width = Math.round(frame.clientWidth);
    if (width && width !== drawn) {
      drawn = width;
      frame.replaceChildren(diagram(rows, width));
    }
  };
  new ResizeObserver(draw).observe(frame);
  const spared = trace.outcomes.filter(isSpared).length;
  return section(
    t("route"),
    { class: "card" },
    h("p", { class: "soft" }, t("route.total", { time: span(trace.took_ms) }), stages(trace)),
    frame,
    spared ? h("p", { class: "soft" }, counted("route.spared", spared)) : null,
  );
}

/** Returns the stages that took a noticeable part of the time. */
function stages(trace) {
  const noticed = STAGES.map((name) => [name, trace.elapsed_ms[name] ?? 0]).filter(([, ms]) => ms >= 1 && ms >= 0.02 * trace.took_ms);
  return noticed.length ? `: ${noticed.map(([name, ms]) => `${t(`stage.${name}`)} ${span(ms)}`).join(", ")}` : "";
}

function isSpared(outcome) {
  return outcome.status === "skipped" && (outcome.reason ?? "").startsWith("not needed");
}

function rowsOf(trace) {
  const took = trace.elapsed_ms;
  const rows = [{ kind: "station", name: t("route.question"), said: t("route.read", { by: t(`by.${trace.intent.by}`), time: span(took.intent ?? 0) }) }];
  const several = new Set(trace.plan.map((one) => one.search)).size > 1;
  const asked = trace.outcomes.map((outcome, place) => ({ ...outcome, search: trace.plan[place].search })).filter((one) => !isSpared(one));
  const slowest = Math.max(1, ...asked.map((one) => one.elapsed_ms));
  let step = 1;
  for (const one of asked) {
    if (one.step !== step) {
      step = one.step;
      rows.push({ kind: "station", name: t("route.step", { n: step }), said: t("route.step_why") });
    }
    const said = [one.status === "ok" ? counted("hits", one.hits) : statusName(one.status), span(one.elapsed_ms), one.reason && reasonText(one.reason)].filter(Boolean);
    rows.push({ kind: "lane", name: sourceName(one.source), search: several ? one.search : "", said: said.join(" · "), status: one.status, share: one.elapsed_ms / slowest });
  }
  if (trace.intent.kind !== "none") {
    rows.push({ kind: "station", name: t("route.fused"), said: [counted("chunks", trace.ranked), span(took.fusion ?? 0)].join(" · ") });
    if (trace.reranking) {
      const said = trace.reranking.error ? t("route.rerank_failed") : t("route.reranked_said", { by: trace.reranking.by, n: number(trace.reranking.scores.length), time: span(took.rerank ?? 0) });
      rows.push({ kind: "station", name: t("route.reranked"), said });
    }
  }
  const end = trace.table ? counted("rows", trace.table.count) : counted("hits", trace.hits.length);
  rows.push({ kind: "station", name: t("route.answer"), said: [end, took.answer ? t("route.answered", { time: span(took.answer) }) : null].filter(Boolean).join(" · ") });
  return rows;
}

function diagram(rows, width) {
  const drawing = [];
  let y = STATION / 2;
  let last = y;
  const barX = Math.max(TEXT_X + 150, Math.round(width * 0.62));
  for (const row of rows) {
    if (row.kind === "station") {
      drawing.push(
        s("circle", { cx: LINE_X, cy: y, r: 6, class: "station" }),
        s("text", { x: LINE_X + 20, y: y - 2, class: "name" }, row.name),
        s("text", { x: LINE_X + 20, y: y + 15, class: "said" }, cut(row.said, width - LINE_X - 20)),
      );
      last = y;
      y += STATION + (rows.indexOf(row) === rows.length - 1 ? 0 : 6);
      continue;
    }
    const half = LANE / 2 - 2;
    drawing.push(
      s("path", { d: loop(y, half), class: "track" }),
      s("circle", { cx: LOOP_X, cy: y, r: 7, class: `signal ${row.status}` }),
      s("text", { x: TEXT_X, y: y - 3, class: "name" }, cut(row.search ? `${row.name} · ${row.search}` : row.name, barX - TEXT_X - 12, BOLD)),
      s("text", { x: TEXT_X, y: y + 14, class: "said" }, cut(row.said, width - TEXT_X)),
      s("rect", { x: barX, y: y - 13, width: width - barX - 2, height: 8, rx: 4, class: "bar-back" }),
      s("rect", { x: barX, y: y - 13, width: Math.max(3, row.share * (width - barX - 2)), height: 8, rx: 4, class: `bar-time ${row.status}` }),
    );
    y += LANE;
  }
  const label = rows.map((row) => [row.name, row.search, row.said].filter(Boolean).join(": ")).join("; ");
  return s(
    "svg",
    { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${last + 28}`, width, height: last + 28 },
    s("title", {}, label),
    s("path", { d: `M${LINE_X} ${STATION / 2}V${last}`, class: "track main" }),
    drawing,
  );
}

/** Draws a track that leaves the main line above y, passes the signal and returns below. */
function loop(y, half) {
  const bend = 0.5 * half;
  return `M${LINE_X} ${y - half}C${LINE_X} ${y - bend} ${LOOP_X} ${y - bend} ${LOOP_X} ${y}S${LINE_X} ${y + bend} ${LINE_X} ${y + half}`;
}

/** Cuts a text to a width in pixels, at `letter` pixels per character; wide characters count double. */
function cut(text, pixels, letter = 7) {
  let left = pixels / letter;
  let kept = "";
  for (const character of text) {
    left -= character.codePointAt(0) > 0x2e80 ? 2 : 1;
    if (left < 1) return `${kept}…`;
    kept += character;
  }
  return kept;
}
