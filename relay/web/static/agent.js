/** One agent: its question, its terminal or its log, and what the user may do with it. */

import { agentLink, isRunning, keyOf, stateBadge } from "./badge.js";
import { agentPath, get, post } from "./api.js";
import { button, confirm, el, empty, icon, notify, say, set } from "./dom.js";
import { showSince, time } from "./format.js";
import { board, refresh } from "./live.js";
import { questionCard } from "./question.js";
import { sendBox } from "./send.js";
import { terminalPane } from "./terminal.js";

export function agentPage(parent, team, name) {
  let agent = null;
  let tab = null; // "terminal" or "log"
  let pane = null;

  const badge = stateBadge();
  const since = el("time.since");
  const about = el("p.facts");
  const reason = el("p.reason", { hidden: true });
  const card = questionCard();
  const view = el("div.view");
  const tabs = ["terminal", "log"].map((each) =>
    el("a", { href: agentLink({ team, name }, ...(each === "log" ? ["log"] : [])), "data-tab": each },
      each === "log" ? "Log" : "Terminal"),
  );
  const restart = button("Restart", () => act("restart", `Restart ${name}?`,
    "Its program ends, and starts again in the same terminal with its conversation."));
  const hold = button("Hold", () => change("hold", `${name} is held. Messages to it wait.`));
  const release = button("Release", () => change("release", `${name} continues.`));
  const stop = button("Stop", () => act("stop", `Stop ${name}?`,
    "Its program ends. It starts again only when you say so."), { style: "danger" });
  const gone = empty(`There is no agent named ${name}.`, "It may have been forgotten, or belongs to another team.");
  const send = sendBox({ team, to: name });
  const whole = el(
    "article.agent-page",
    {},
    el(
      "div.heading",
      {},
      el("a.button.plain.back", { href: "#/agents", "aria-label": "Back to all agents" }, icon("back")),
      el("h2", { tabindex: -1 }, name),
      badge,
      since,
      el("div.actions", {}, hold, release, restart, stop),
    ),
    about,
    reason,
    card,
    el("nav.tabs", { "aria-label": `Views of ${name}` }, ...tabs),
    view,
    send,
  );
  parent.append(whole);
  gone.hidden = true;
  parent.append(gone);

  async function act(what, title, text) {
    if (!(await confirm(title, text, what === "stop" ? "Stop" : "Restart", what === "stop" ? "danger" : "primary"))) return;
    await change(what, what === "stop" ? `${name} has stopped.` : `${name} has been restarted.`);
  }

  async function change(what, done) {
    try {
      await post(agentPath({ name }, what), {}, { team });
      notify(done);
    } catch (error) {
      notify(error.message, "error");
    }
    refresh("agents", "inbox");
  }

  function update() {
    if (board.entries === null) return;
    agent = board.entries.find((entry) => keyOf(entry) === keyOf({ team, name })) ?? null;
    gone.hidden = agent !== null;
    whole.hidden = agent === null;
    if (agent === null) return;
    badge.update(agent);
    showSince(since, agent.since);
    say(about, [agent.agent, agent.team, agent.branch, agent.cwd.split("/").at(-1)].filter(Boolean).join(" · "));
    set(about, "title", agent.cwd);
    const needs = agent.group === "needs you" && !agent.question ? agent.line : "";
    say(reason, needs || agent.account_hold || agent.reason);
    reason.hidden = !reason.textContent;
    card.update(agent);
    const runs = isRunning(agent);
    set(stop, "disabled", !runs);
    set(restart, "disabled", !runs);
    hold.hidden = !runs || agent.state === "held";
    release.hidden = agent.state !== "held";
    send.hidden = !runs;
    pane ??= (tab === "log" ? logPane : terminalPane)(view, agent);
    pane.update(agent);
  }

  return {
    go([wanted = "terminal"]) {
      if (wanted !== tab) {
        pane?.close();
        pane = null;
        view.replaceChildren();
        tab = wanted;
      }
      for (const each of tabs) set(each, "aria-current", each.dataset.tab === tab ? "true" : null);
      update();
    },
    update,
    close() {
      pane?.close();
    },
  };
}

/** What the agent said, in lines. */
function logPane(parent, agent) {
  const lines = el("ol.log", { tabindex: 0, "aria-label": `What ${agent.name} said` });
  let last = null;
  parent.append(lines);

  async function load() {
    let found;
    try {
      found = await get(agentPath(agent, "logs"), { team: agent.team });
    } catch (error) {
      return lines.replaceChildren(el("li.empty", {}, error.message));
    }
    const follow = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 20;
    lines.replaceChildren(
      ...found.map((each) => el("li", {}, el("time", {}, time(each.time)), el("span", {}, each.text))),
    );
    if (!found.length) lines.append(el("li.empty", {}, "It has not said anything yet."));
    if (follow) lines.scrollTop = lines.scrollHeight;
  }

  return {
    update(entry) {
      const now = `${entry.id} ${entry.last_line} ${entry.state}`;
      if (now !== last) load();
      last = now;
    },
    close() {},
  };
}
