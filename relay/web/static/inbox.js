/** What waits for the user, the most urgent first. */

import { agentLink, keyOf } from "./badge.js";
import { post } from "./api.js";
import { button, el, empty, heading, keyed, notify, say, set } from "./dom.js";
import { showSince } from "./format.js";
import { board, refresh } from "./live.js";
import { hasMoved, questionCard } from "./question.js";

const TITLES = {
  question: "has a question", failed: "has failed", held: "is held", escalation: "needs you",
  unresponsive: "does not answer", runaway: "has sent too much", message: "says to you",
  undelivered: "sent a message that did not arrive", configuration: "has a mistake in its configuration",
  configurations: "have a mistake in their configuration",
  notice: "has a notice for you",
};

export function open(main) {
  const summary = el("p.summary");
  const items = el("ul.items");
  const nothing = empty("Nothing waits for you.", "Questions, messages to you, failures and notices appear here.");
  main.append(heading("Inbox", summary), items, nothing);
  nothing.hidden = true;

  function draw() {
    if (board.entries === null) return;
    nothing.hidden = board.inbox.length > 0;
    say(summary, board.inbox.length ? `${board.unread} of ${board.inbox.length} unread` : "");
    if (keyed(items, board.inbox, (item) => `${item.id}/${item.kind}/${item.team}/${item.name}`, itemRow)) hasMoved();
  }

  return { go: draw, update: draw, close() {} };
}

function itemRow(item) {
  const since = el("time.since");
  const mark = el("span.mark", {}, "unread");
  const text = el("p.text");
  const next = el("code");
  const card = questionCard();
  const change = (what) => async () => {
    try {
      await post(`/api/inbox/${encodeURIComponent(item.id)}/${what}`);
    } catch (error) {
      notify(error.message, "error");
    }
    refresh("inbox", "agents");
  };
  const read = button("Mark as read", change("read"));
  const done = button("Done", change("done"));
  const row = el(
    "li.item",
    {},
    el(
      "div.top",
      {},
      el("span.who", {}, item.name.includes(", ") ? item.name : el("a", { href: agentLink(item) }, item.name),
        ` ${TITLES[item.name.includes(", ") ? `${item.kind}s` : item.kind] ?? item.kind}`),
      mark,
      since,
    ),
    text,
    card,
    el("div.actions", {}, read, done, el("span.next", {}, "In a terminal: ", next)),
  );
  row.update = (now) => {
    item = now;
    row.classList.toggle("is-unread", !now.read);
    mark.hidden = now.read;
    read.hidden = now.read || !now.id;
    done.hidden = !now.id || now.kind === "question";
    showSince(since, now.since);
    say(text, now.text);
    say(next, now.next);
    const agent = now.kind === "question" ? agentOf(now) : null;
    text.hidden = agent !== null;
    if (agent) card.update(agent);
    set(row, "data-kind", now.kind);
  };
  return row;
}

function agentOf(item) {
  return board.entries.find((entry) => keyOf(entry) === keyOf(item)) ?? null;
}
