/** The recordings of sessions, and the player. */

import { get, getText } from "./api.js";
import { button, el, empty, heading, icon, keyed, say, set } from "./dom.js";
import { bytes, clock, time } from "./format.js";
import { filter } from "./live.js";
import { Player } from "./player.js";
import { zoomButtons } from "./terminal.js";

const SPEEDS = [0.5, 1, 2, 4, 8, 16];

export function open(main) {
  let all = null;
  let chosen; // { id, close() }, or null

  const rows = el("ul.casts");
  const nothing = empty("There are no recordings.", "relay records each session while it runs.");
  const detail = el("section.detail", { "aria-label": "Player" });
  main.append(el("section.list", { "aria-label": "Recordings" }, heading("Recordings"), rows, nothing), detail);
  nothing.hidden = true;

  async function load() {
    try {
      all = await get("/api/recordings", { team: filter.team });
    } catch (error) {
      nothing.hidden = false;
      return say(nothing.lastElementChild, error.message);
    }
  }

  function draw() {
    nothing.hidden = all.length > 0;
    keyed(rows, all.toSorted((one, other) => other.began - one.began), (each) => each.id, castRow);
    for (const link of rows.querySelectorAll("a")) {
      set(link, "aria-current", link.dataset.id === chosen?.id ? "true" : null);
    }
  }

  return {
    async go([id]) {
      if (all === null) await load();
      if (chosen === undefined || id !== chosen?.id) {
        chosen?.close();
        detail.replaceChildren();
        chosen = id ? { id, ...playerPane(detail, id, all?.find((each) => each.id === id)) } : null;
        if (!id) detail.append(empty("No recording is chosen.", "It plays here, as it looked in the agent's terminal."));
      }
      main.classList.toggle("chosen", chosen !== null);
      if (all !== null) draw();
    },
    update() {},
    close() {
      chosen?.close();
    },
  };
}

function castRow(cast) {
  const facts = el("span.facts");
  const link = el(
    "a",
    { href: `#/recordings/${encodeURIComponent(cast.id)}`, "data-id": cast.id },
    el("span.who", {}, cast.name),
    el("time.since", {}, time(cast.began)),
    facts,
  );
  const row = el("li", {}, link);
  row.update = (now) => {
    say(facts, [now.team, now.seconds === null ? "" : clock(now.seconds), now.running ? "still running" : "", bytes(now.bytes)].filter(Boolean).join(" · "));
  };
  return row;
}

function playerPane(parent, id, cast) {
  let shown = null;
  let player = null;
  let closed = false;

  const title = el("h2", { tabindex: -1 }, cast?.name ?? "Recording");
  const about = el("p.facts", {}, cast ? `${time(cast.began)} · ${cast.command ?? ""}` : "");
  const problem = el("p.problem", { role: "alert", hidden: true });
  const box = el("div.screen");
  const play = button(icon("play"), () => player.toggle(), { style: "primary", label: "Play" });
  const at = el("span.at", {}, "0:00");
  const seek = el("input", {
    type: "range", min: 0, max: 0, step: 0.1, value: 0, "aria-label": "Position",
    oninput: () => player.seek(Number(seek.value)),
  });
  const speed = el(
    "select",
    { "aria-label": "Speed", onchange: () => (player.speed = Number(speed.value)) },
    ...SPEEDS.map((each) => el("option", { value: each, selected: each === 1 }, `${each}×`)),
  );
  const controls = el("div.controls", {}, play, seek, at, speed, zoomButtons(() => shown));
  const back = el("a.button.plain.back", { href: "#/recordings", "aria-label": "Back to all recordings" }, icon("back"));
  parent.append(el("div.heading", {}, back, title), about, problem, el("div.term", {}, box, controls));
  controls.hidden = true;

  async function load() {
    let text;
    try {
      text = await getText(`/api/recordings/${encodeURIComponent(id)}`);
    } catch (error) {
      problem.hidden = false;
      return say(problem, error.message);
    }
    const { screen } = await import("./screen.js");
    if (closed) return;
    shown = screen(box, { label: "Recording" });
    player = new Player(text, shown, showPlace);
    set(seek, "max", player.length);
    controls.hidden = false;
    player.seek(0);
    play.focus({ preventScroll: true });
  }

  function showPlace() {
    const label = player.playing ? "Pause" : "Play";
    if (play.title !== label) {
      play.replaceChildren(icon(label.toLowerCase()));
      set(play, "title", label);
      set(play, "aria-label", label);
    }
    seek.value = player.at;
    const text = `${clock(player.at)} / ${clock(player.length)}`;
    set(seek, "aria-valuetext", text);
    say(at, text);
  }

  load();
  return {
    close() {
      closed = true;
      player?.pause();
      shown?.close();
    },
  };
}
