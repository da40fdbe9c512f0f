/** How an agent is shown on every page: its link, and its state. */

import { el, say, set } from "./dom.js";

export function agentLink(agent, ...more) {
  return ["#/agents", ...[agent.team, agent.name, ...more].map(encodeURIComponent)].join("/");
}

/** The state in words, with a dot in its colour. */
export function stateBadge() {
  const text = el("span");
  const badge = el("span.state", {}, text);
  badge.update = (entry) => {
    set(badge, "data-group", entry.group);
    set(badge, "data-state", entry.state);
    say(text, entry.state === "prompting" ? asks(entry.prompt) : entry.state);
  };
  return badge;
}

function asks(kind) {
  return !kind || kind === "other" ? "asks" : `asks: ${kind.replace("_", " ")}`;
}
