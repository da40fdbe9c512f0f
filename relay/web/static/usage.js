/** Tokens and cost, by agent and by account; the limits of accounts. */

import { get } from "./api.js";
import { el, empty, heading } from "./dom.js";
import { money, time, tokens } from "./format.js";
import { filter } from "./live.js";

const EVERY = 30_000; // milliseconds between two looks
const KINDS = [["input", "Input"], ["output", "Output"], ["cache_read", "Cache read"], ["cache_write", "Cache write"]];

export function open(main) {
  const body = el("div.body");
  const timer = setInterval(() => document.hidden || load(), EVERY);
  main.append(heading("Usage"), body);

  async function load() {
    let usage;
    try {
      usage = await get("/api/usage", { team: filter.team });
    } catch (error) {
      return body.replaceChildren(empty("There is no usage to show.", error.message));
    }
    if (!usage.agents.length) {
      return body.replaceChildren(empty("No agent has used any tokens yet.", "The figures come from the agents' own files."));
    }
    body.replaceChildren(
      ...usage.holds.map((hold) => el("p.problem", {}, `The account ${hold.account} is held: ${hold.text ?? hold.cls}`)),
      ...(usage.limits.length ? [limits(usage.limits)] : []),
      table("By account", ["Account"], usage.accounts, (row) => [row.account]),
      table("By agent", ["Agent", "Kind", "Account"], usage.agents, (row) => [row.name, row.agent, row.account]),
      el("p.note", {}, "Costs are in US dollars at list prices; with a subscription you pay something else. “+” stands for tokens whose price is not known."),
    );
  }

  return { go: load, update() {}, close: () => clearInterval(timer) };
}

function table(title, columns, rows, cells) {
  const id = `usage-${title.replaceAll(" ", "-")}`;
  const most = Math.max(1, ...rows.map((row) => row.tokens.total));
  const head = [...columns, "Turns", ...KINDS.map(([, name]) => name), "Total", "Cost"];
  const numbers = columns.length;
  return el(
    "section",
    { "aria-labelledby": id },
    el("h2", { id }, title),
    el(
      "div.wide",
      { tabindex: 0, role: "region", "aria-labelledby": id },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, ...head.map((name, at) => el(at < numbers ? "th" : "th.number", { scope: "col" }, name)))),
        el("tbody", {}, ...rows.map((row) => tableRow(cells(row), row, most))),
      ),
    ),
  );
}

function tableRow([first, ...names], row, most) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, first),
    ...names.map((text) => el("td", {}, text)),
    el("td.number", {}, row.turns.toLocaleString()),
    ...KINDS.map(([kind]) => el("td.number", { title: row.tokens[kind].toLocaleString() }, tokens(row.tokens[kind]))),
    el("td.number.total", {}, el("progress", { max: most, value: row.tokens.total, "aria-hidden": "true" }), tokens(row.tokens.total)),
    el("td.number", {}, (money(row.cost) || "?") + (row.cost !== null && row.unpriced_tokens ? " +" : "")),
  );
}

function limits(all) {
  return el(
    "section",
    { "aria-labelledby": "usage-limits" },
    el("h2", { id: "usage-limits" }, "Limits"),
    el("ul.limits", {}, ...all.flatMap((each) => each.windows.map((window) => limit(each, window)))),
  );
}

function limit({ account, at }, { used_percent: used, window_minutes: minutes, resets_at: resets }) {
  const what = minutes === null ? "Limit" : minutes >= 10_080 ? "Weekly" : `${Math.round(minutes / 60)} hours`;
  return el(
    "li",
    {},
    el("span", {}, `${account}, ${what.toLowerCase()}`),
    el("meter", { min: 0, max: 100, high: 80, value: used, "aria-label": `${account}, ${what}` }),
    el("span", {}, `${Math.round(used)} % used${resets ? `, resets ${time(resets)}` : ""}, as of ${time(at)}`),
  );
}
