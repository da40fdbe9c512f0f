/** The page's frame: signing in, which page is shown, the counts, and what is wrong with the connection. */

import { get, post, remove, server } from "./api.js";
import { el, keyed, say } from "./dom.js";
import { keepTime, many } from "./format.js";
import { board, filter, refresh, start, stop, watch } from "./live.js";
import * as agents from "./agents.js";
import * as fleet from "./fleet.js";
import * as inbox from "./inbox.js";
import * as messages from "./messages.js";
import * as recordings from "./recordings.js";
import * as usage from "./usage.js";

const PAGES = { agents, inbox, messages, fleet, usage, recordings };
const TITLES = {
  agents: "Agents", inbox: "Inbox", messages: "Messages", fleet: "Fleet", usage: "Usage", recordings: "Recordings",
};
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const team = document.querySelector("#team select");

let shown = null; // { name, page: { go(parts), update(news), close() } }
let known = null; // the keys of the agents that needed the user at the last look

function route() {
  const [name, ...parts] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  if (location.hash && !location.hash.startsWith("#/")) return; // a link within the page
  const page = Object.hasOwn(PAGES, name) ? name : "agents";
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (shown?.name === page) return shown.page.go(parts);
  const moved = shown !== null;
  shown?.page.close();
  main.replaceChildren();
  main.className = page;
  shown = { name: page, page: PAGES[page].open(main) };
  shown.page.go(parts);
  if (moved) (main.querySelector("h1") ?? main).focus({ preventScroll: true });
  retitle();
}

function retitle() {
  const count = board.unread ? `(${board.unread}) ` : "";
  document.title = `${count}${TITLES[shown?.name] ?? ""} - relay`.replace(/^ - /, "");
}

function update(news) {
  const needs = (board.entries ?? []).filter((entry) => entry.group === "needs you");
  showCount("agents", needs.length, "needs you", "need you");
  showCount("inbox", board.unread, "unread", "unread");
  announce(needs);
  showTeams();
  retitle();
  shown?.page.update(news);
}

function showCount(name, number, one, several) {
  const count = document.querySelector(`[data-count=${name}]`);
  count.hidden = !number;
  if (number) count.replaceChildren(String(number), el("span.unseen", {}, ` ${number === 1 ? one : several}`));
}

/** Tell screen readers who needs the user, once. */
function announce(needs) {
  const keys = new Map(needs.map((entry) => [`${entry.team}/${entry.name}/${entry.line}`, entry]));
  const fresh = [...keys].filter(([key]) => known && !known.has(key)).map(([, entry]) => entry);
  known = new Set(keys.keys());
  if (!fresh.length) return;
  const [first] = fresh;
  const text = fresh.length === 1 ? `${first.name} needs you: ${first.line}` : `${many(fresh.length, "agent")} need you.`;
  say(document.getElementById("announcer"), text);
}

const teams = new Set();

function showTeams() {
  for (const entry of board.entries ?? []) teams.add(entry.team);
  document.getElementById("team").hidden = teams.size < 2;
  keyed(team, ["", ...[...teams].sort()], (each) => each, (each) => el("option", { value: each }, each || "all"));
  team.value = filter.team;
}

team.addEventListener("change", () => {
  filter.team = team.value;
  refresh();
});

/* The session. */

function begin() {
  route();
  start(); // the server's first event says that everything has changed
}

function showBanner(text, ...more) {
  banner.hidden = !text;
  banner.replaceChildren(text ?? "", ...more);
}

/** Show how to get in, in place of all pages. problem: why the last try failed. */
function signedOut(problem = "") {
  stop();
  shown?.page.close();
  shown = null;
  document.body.classList.add("signed-out");
  const field = el("input", { id: "link", autocomplete: "off", spellcheck: "false", required: true });
  const submit = (event) => {
    event.preventDefault();
    signIn(field.value.trim().replace(/^.*#/, ""));
  };
  main.className = "sign-in";
  main.replaceChildren(
    el(
      "form.card",
      { onsubmit: submit },
      el("h1", { tabindex: -1 }, "Connect to relay"),
      problem ? el("p.problem", { role: "alert" }, problem) : null,
      el(
        "p",
        {},
        el("code", {}, "relay web"),
        " prints a link that opens this page once, within a minute. Enter in its terminal prints another.",
      ),
      el("label", { for: "link" }, "Link or token"),
      field,
      el("button.primary", { type: "submit" }, "Connect"),
    ),
  );
  showBanner(null);
  document.title = "relay";
}

async function signIn(token) {
  try {
    await post("/api/session", { token });
  } catch (error) {
    return signedOut(error.message);
  }
  document.body.classList.remove("signed-out");
  main.replaceChildren();
  begin();
}

document.getElementById("logout").addEventListener("click", async () => {
  await remove("/api/session").catch(() => {});
  signedOut();
});

server.addEventListener("signedout", () => {
  if (!document.body.classList.contains("signed-out")) signedOut();
});
server.addEventListener("gone", () => showBanner("relay web has ended, or cannot be reached. Trying to reconnect …"));
server.addEventListener("back", () => showBanner(null));

window.addEventListener("hashchange", () => shown && route());
watch(update);
keepTime();

const token = location.hash.match(/^#([A-Za-z0-9_-]{20,})$/)?.[1];
if (token) {
  history.replaceState(null, "", "/"); // nobody finds it in the history
  signIn(token);
} else {
  get("/api/agents").then(
    (entries) => {
      board.entries = entries;
      begin();
    },
    (error) => error.status === 401 || signedOut(error.message),
  );
}
