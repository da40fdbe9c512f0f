/** What the agents and the user wrote to each other, by thread. */

import { get } from "./api.js";
import { el, empty, heading, icon, keyed, say, set } from "./dom.js";
import { many, time } from "./format.js";
import { board, filter } from "./live.js";
import { sendBox } from "./send.js";

const FINAL = new Set(["injected", "read"]); // states in which a message needs no word

export function open(main) {
  let all = null;
  let thread = null;

  const threads = el("ul.threads");
  const nothing = empty("There are no messages.", "Agents write to each other with “@relay:NAME text”, and you below.");
  const title = el("h2", { tabindex: -1 });
  const list = el("ol.thread", { "aria-label": "Messages" });
  const teamOf = () => chosen()?.at(-1).team ?? board.entries?.find((entry) => entry.group !== "done")?.team;
  const names = () => [...new Set((board.entries ?? []).filter((each) => each.group !== "done").map((each) => each.name))];
  const send = sendBox({ team: teamOf, names });
  const back = el("a.button.plain.back", { href: "#/messages", "aria-label": "Back to all threads" }, icon("back"));
  const right = el("section.detail", { "aria-label": "The chosen thread" }, el("div.heading", {}, back, title), list, send);
  main.append(el("section.list", { "aria-label": "Threads" }, heading("Messages"), threads, nothing), right);
  nothing.hidden = true;

  async function load() {
    try {
      all = await get("/api/messages", { team: filter.team });
    } catch (error) {
      nothing.hidden = false;
      return say(nothing.querySelector(".title"), error.message);
    }
    draw();
  }

  const byThread = () => {
    const found = new Map();
    for (const message of all ?? []) {
      const key = `${message.team}/${message.thread ?? message.id}`; // that of a thread is its first message's
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(message);
    }
    return found;
  };
  const chosen = () => byThread().get(thread);

  function draw() {
    if (all === null) return;
    const sorted = [...byThread()].sort(([, one], [, other]) => other.at(-1).time - one.at(-1).time);
    nothing.hidden = sorted.length > 0;
    keyed(threads, sorted, ([key]) => key, threadRow);
    for (const row of threads.children) {
      set(row.firstElementChild, "aria-current", row.firstElementChild.dataset.thread === thread ? "true" : null);
    }
    const messages = chosen() ?? [];
    say(title, messages.length ? namesOf(messages).join(", ") : "New message");
    const follow = list.scrollTop + list.clientHeight >= list.scrollHeight - 40;
    if (keyed(list, messages, (message) => `${message.id}/${message.to}`, messageRow) && follow) {
      list.scrollTop = list.scrollHeight;
    }
  }

  return {
    go([team, name]) {
      const before = thread;
      thread = name === undefined ? null : `${team}/${name}`;
      main.classList.toggle("chosen", thread !== null);
      if (all === null) load();
      else draw();
      if (thread !== before) list.scrollTop = list.scrollHeight;
      const other = chosen()?.findLast((message) => message.from !== "you")?.from;
      if (other) send.address(other);
    },
    update(news) {
      if (news.has("messages")) load();
    },
    close() {},
  };
}

/** Who writes to whom: a channel stands for its members. */
function namesOf(messages) {
  return [...new Set(messages.flatMap((message) => [message.from, message.channel ? `#${message.channel}` : message.to]))];
}

function threadRow([key]) {
  const href = ["#/messages", ...key.split(/\/(.*)/s).slice(0, 2).map(encodeURIComponent)].join("/");
  const who = el("span.who");
  const when = el("time.since");
  const last = el("span.last");
  const link = el("a", { href, "data-thread": key }, who, when, last);
  const row = el("li", {}, link);
  row.update = ([, messages]) => {
    const newest = messages.at(-1);
    say(who, namesOf(messages).join(", "));
    say(when, time(newest.time));
    say(last, `${newest.from}: ${newest.body}`);
    set(link, "title", many(messages.length, "message"));
  };
  return row;
}

function messageRow(message) {
  const state = el("span.state");
  const row = el(
    "li.message",
    {},
    el("p.top", {}, el("strong", {}, message.from), ` to ${message.channel ? `#${message.channel}` : message.to}`,
      el("time", {}, time(message.time)), state),
    el("p.body", {}, message.body),
  );
  row.classList.toggle("own", message.from === "you");
  row.update = (now) => {
    say(state, FINAL.has(now.state) ? "" : [now.state, now.detail].filter(Boolean).join(": "));
    set(state, "data-state", now.state);
  };
  return row;
}
