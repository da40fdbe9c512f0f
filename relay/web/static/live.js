/** What the whole page shares: the agents, the inbox, and the server's word that something has changed. */

import { get, reached } from "./api.js";

const GATHER = 250; // milliseconds in which changes are gathered into one look
const RETRY = [1, 2, 4, 8, 15]; // seconds between two tries to reach the server
const EVERYTHING = ["agents", "inbox", "messages"];

/** The last look. entries: the agents, the most urgent first; null before the first look. */
export const board = { entries: null, inbox: [], unread: 0 };

/** The team that is shown; "" for all. */
export const filter = { team: "" };

const watchers = new Set();
let source = null;
let changed = new Set();
let looking = false;
let timer = null;
let retry = null;
let tries = 0;

/** Call `watcher` with the set of what has changed, after each look. Returns a function that ends this. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** Look again soon: after an action, or when the server says so. */
export function refresh(...what) {
  for (const each of what.length ? what : EVERYTHING) changed.add(each);
  timer ??= setTimeout(look, GATHER);
}

async function look() {
  timer = null;
  if (looking) return refresh(...changed);
  looking = true;
  const news = changed;
  changed = new Set();
  try {
    const query = { team: filter.team };
    const asks = [];
    if (news.has("agents")) asks.push(get("/api/agents", query).then((all) => (board.entries = all)));
    if (news.has("inbox")) asks.push(get("/api/inbox", query).then((all) => (board.inbox = all)));
    await Promise.all(asks);
    board.unread = board.inbox.filter((item) => !item.read).length;
  } catch {
    for (const each of news) changed.add(each); // with the next look
    return;
  } finally {
    looking = false;
  }
  for (const watcher of [...watchers]) watcher(news);
}

/** Listen to the server until `stop`; when it has gone, try again, ever more rarely. */
export function start() {
  stop();
  source = new EventSource("/api/events");
  source.onopen = () => {
    tries = 0;
    reached(true);
  };
  source.addEventListener("changed", (event) => refresh(...JSON.parse(event.data)));
  source.onerror = () => {
    source.close();
    const wait = RETRY[Math.min(tries++, RETRY.length - 1)];
    retry = setTimeout(start, wait * 1000);
    get("/api/agents", { team: filter.team }).catch(() => {}); // says whether the session is over, or the server
  };
}

export function stop() {
  clearTimeout(retry);
  source?.close();
  source = null;
}
