/** The fleet of the folder in which the server was started: its members, to start and to stop. */

import { agentLink, stateBadge } from "./badge.js";
import { get, post } from "./api.js";
import { button, confirm, el, empty, heading, keyed, notify, say, set } from "./dom.js";
import { board, refresh } from "./live.js";

const PLAIN = new Set(["start", "running"]); // what the state says already

export function open(main) {
  let plan = null; // what `relay up` would do: [{ name, action, text }]

  const rows = el("ul.members");
  const nothing = empty("There is no fleet here.", "");
  main.append(heading("Fleet"), rows, nothing);
  nothing.hidden = true;

  async function load() {
    try {
      plan = await get("/api/fleet");
    } catch (error) {
      plan = [];
      say(nothing.lastElementChild, error.message);
    }
    draw();
  }

  function draw() {
    if (plan === null) return;
    const members = new Map();
    for (const { name, action, text } of plan) {
      const texts = members.get(name)?.texts ?? [];
      members.set(name, { name, texts: PLAIN.has(action) ? texts : [...texts, text] });
    }
    nothing.hidden = members.size > 0;
    keyed(rows, [...members.values()], (member) => member.name, (member) => memberRow(member, load));
  }

  return { go: load, update: draw, close() {} };
}

function memberRow({ name }, reload) {
  const badge = stateBadge();
  const link = el("a.name", {}, name);
  const about = el("p.facts");
  const problem = el("p.problem", { role: "alert", hidden: true });
  const change = async (what) => {
    const text = "It starts again only when you say so.";
    if (what === "down" && !(await confirm(`Stop ${name}?`, text, "Stop", "danger"))) return;
    problem.hidden = true;
    for (const each of [start, stop]) set(each, "disabled", true);
    try {
      const done = await post(`/api/fleet/${encodeURIComponent(name)}/${what}`);
      notify(done.map((each) => each.text ?? `${each.name}: ${each.outcome}`).join(" "));
    } catch (error) {
      const failed = Array.isArray(error.body) ? error.body : [error.body];
      say(problem, failed.map((each) => each.error ?? each.text).filter(Boolean).join(" ") || error.message);
      problem.hidden = false;
    }
    for (const each of [start, stop]) set(each, "disabled", false);
    refresh("agents");
    reload();
  };
  const start = button("Start", () => change("up"), { style: "primary", label: `Start ${name}` });
  const stop = button("Stop", () => change("down"), { label: `Stop ${name}` });
  const log = el("a.button", { "aria-label": `Log of ${name}` }, "Log");
  const row = el("li.member", {}, el("div.top", {}, link, badge), about, problem, el("div.actions", {}, start, stop, log));

  row.update = ({ texts }) => {
    const agent = board.entries?.find((entry) => entry.name === name);
    const runs = agent !== undefined && agent.group !== "done";
    badge.update(agent ?? { group: "done", state: "not running" });
    for (const [each, more] of [[link, []], [log, ["log"]]]) {
      set(each, "href", agent ? agentLink(agent, ...more) : null);
    }
    log.hidden = !agent;
    say(about, [agent?.line, ...texts].filter(Boolean).join(" · "));
    start.hidden = runs;
    stop.hidden = !runs;
  };
  return row;
}
