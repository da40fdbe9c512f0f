/** The agents in groups, the most urgent first; and beside or in place of them, the chosen one. */

import { agentPage } from "./agent.js";
import { agentLink, stateBadge } from "./badge.js";
import { el, empty, heading, keyed, say, set } from "./dom.js";
import { many, money, showSince, tokens } from "./format.js";
import { board } from "./live.js";
import { hasMoved, questionCard } from "./question.js";

const FEW = 8; // agents that need no filter
const GROUPS = ["needs you", "working", "waiting", "done"];

export function open(main) {
  let chosen = null; // { key, page }

  const groups = el("div.groups");
  const summary = el("p.summary");
  const search = el("input.filter", { type: "search", placeholder: "Filter", "aria-label": "Filter", oninput: draw });
  const list = el("section.list", { "aria-label": "Agents" }, heading("Agents", summary, search), groups);
  const detail = el("section.detail", { "aria-label": "The chosen agent" });
  main.append(list, detail);

  function draw() {
    if (board.entries === null) return;
    const entries = board.entries.filter(matches(search.value));
    search.hidden = board.entries.length < FEW;
    say(summary, board.entries.length ? summarize(board.entries) : "");
    if (!board.entries.length) {
      const text = "Start one in a terminal: `relay wrap claude`, or `relay up` for a fleet.";
      groups.replaceChildren(empty("There are no agents.", text));
      return;
    }
    groups.querySelector(".empty")?.remove();
    const several = new Set(entries.map((entry) => entry.team)).size > 1;
    const filled = GROUPS.map((name) => ({ name, several, entries: entries.filter((each) => each.group === name) }));
    if (keyed(groups, filled.filter((each) => each.entries.length), (each) => each.name, groupSection)) hasMoved();
    for (const row of groups.querySelectorAll(".agent")) {
      set(row.querySelector("a"), "aria-current", row.dataset.agent === chosen?.key ? "true" : null);
    }
    chosen?.page.update();
  }

  const linkOf = (key) => groups.querySelector(`[data-agent="${CSS.escape(key)}"] a`);
  const focusOn = (element) => element?.focus({ preventScroll: true });

  return {
    go(parts) {
      const [team, name, ...more] = parts;
      const key = name ? `${team}/${name}` : null;
      const before = chosen?.key ?? null;
      if (key !== before) {
        chosen?.page.close();
        detail.replaceChildren();
        chosen = key ? { key, page: agentPage(detail, team, name) } : null;
      }
      chosen?.page.go(more);
      main.classList.toggle("chosen", chosen !== null);
      draw();
      if (key !== before) focusOn(key ? detail.querySelector("h2") : linkOf(before));
    },
    update: draw,
    close() {
      chosen?.page.close();
    },
  };
}

/** Return whether an entry has all of these words, in its name, state, branch, team, or what it says. */
function matches(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (entry) => {
    const all = [entry.name, entry.team, entry.agent, entry.state, entry.branch, entry.line].join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  };
}

function summarize(entries) {
  const needs = entries.filter((entry) => entry.group === "needs you").length;
  const all = many(entries.length, "agent");
  return needs ? `${needs} of ${all} ${needs === 1 ? "needs" : "need"} you` : `${all}, none needs you`;
}

function groupSection({ name }) {
  const id = `group-${name.replace(" ", "-")}`;
  const count = el("span.number");
  const rows = el("ul.rows");
  const section = el(`section.group.${id}`, { "aria-labelledby": id }, el("h2", { id }, `${name} `, count), rows);
  section.update = (group) => {
    say(count, String(group.entries.length));
    const entries = group.entries.map((entry) => ({ ...entry, several: group.several }));
    if (keyed(rows, entries, (entry) => `${entry.team}/${entry.name}`, agentRow)) hasMoved();
  };
  return section;
}

function agentRow(entry) {
  const link = el("a.name", { href: agentLink(entry) }, entry.name);
  const badge = stateBadge();
  const since = el("time.since");
  const line = el("p.line");
  const facts = el("p.facts");
  const unread = el("a.unread", { href: "#/inbox" });
  const card = questionCard();
  const row = el(
    "li.agent",
    { "data-agent": `${entry.team}/${entry.name}` },
    el("div.top", {}, link, badge, unread, since),
    line,
    card,
    facts,
  );
  row.update = (now) => {
    badge.update(now);
    showSince(since, now.since);
    say(line, now.line);
    line.hidden = !now.line;
    say(facts, factsOf(now).join(" · "));
    unread.hidden = !now.unread;
    say(unread, now.unread ? many(now.unread, "unread item") : "");
    card.update(now);
    row.classList.toggle("asks", Boolean(now.prompt || now.question));
  };
  return row;
}

function factsOf(entry) {
  return [
    entry.agent,
    entry.several ? entry.team : "",
    entry.branch,
    entry.tokens ? `${tokens(entry.tokens)} tokens` : "",
    entry.cost ? money(entry.cost) : "",
    entry.held ? `${entry.held} held` : "",
    entry.waiting ? `${entry.waiting} waiting` : "",
    entry.restarts ? many(entry.restarts, "restart") : "",
    entry.viewers ? many(entry.viewers, "viewer") : "",
  ].filter(Boolean);
}
