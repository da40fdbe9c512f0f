/** An agent's terminal: first to look at; on request, and after a question, to type in. */

import { agentPath, post, socketAddress } from "./api.js";
import { button, confirm, el, icon, notify, say, set } from "./dom.js";

const GOING_AWAY = 1001; // the server ends
const ENDED = 4001; // the agent has ended
const DETACHED = 4004; // by its own key, or by another terminal that took control
const LOGGED_OUT = 4008;
const MOST = 32 << 10; // bytes of a message to the server
const RETRY = [1, 2, 4, 8, 15]; // seconds between two tries to connect
const CTRL = 0x1f; // the bits of a control character

const KEYS = [
  ["Esc", "\x1b"], ["Tab", "\t"], ["Ctrl", null], ["←", "D", "Left"], ["↑", "A", "Up"], ["↓", "B", "Down"],
  ["→", "C", "Right"], ["Enter", "\r"],
];

/** Buttons for the size of a screen's text. */
export function zoomButtons(screen) {
  return el(
    "div.zoom",
    { role: "group", "aria-label": "Size of the text" },
    button(icon("minus"), () => screen()?.zoom(1 / 1.2), { style: "plain", label: "Smaller" }),
    button(icon("fit"), () => screen()?.zoom(1), { style: "plain", label: "Fit to the page" }),
    button(icon("plus"), () => screen()?.zoom(1.2), { style: "plain", label: "Larger" }),
  );
}

export function terminalPane(parent, agent) {
  let shown = null; // the screen, once xterm.js is loaded
  let socket = null;
  let mode = "view";
  let tries = 0;
  let retry = null;
  let closed = false;
  let ended = false;
  let ctrl = false;
  let session = agent.id;
  let drawn = 0; // bytes since the WebSocket was opened

  const state = el("p.mode", { role: "status" }, "Connecting …");
  const size = el("span.size");
  const reader = button("Screen reader", () => set(reader, "aria-pressed", String(shown?.toggleReader() ?? false)), {
    style: "plain.reader", "aria-pressed": String(localStorage.getItem("reader") === "on"),
  });
  const take = button("Take control", takeControl, { style: "primary" });
  const release = button("Release", () => connect("view"));
  const box = el("div.screen");
  const bar = el(
    "div.keys",
    { role: "group", "aria-label": "Keys" },
    ...KEYS.map(([name, code, label]) =>
      button(name, (event) => pressKey(code, Boolean(label), event), {
        label: label ?? null, "aria-pressed": name === "Ctrl" ? "false" : null,
        onpointerdown: (event) => event.preventDefault(), // the terminal keeps the focus
      }),
    ),
  );
  const ctrlKey = bar.children[2];
  const whole = el("div.term", {}, el("div.toolbar", {}, state, size, reader, zoomButtons(() => shown), take, release), box, bar);
  parent.append(whole);
  release.hidden = true;

  async function load() {
    const { screen } = await import("./screen.js");
    if (closed) return;
    shown = screen(box, { label: `Terminal of ${agent.name}`, ondata: typed });
    connect("view");
  }

  function connect(wanted) {
    clearTimeout(retry);
    leave();
    mode = wanted;
    const query = { mode, team: agent.team };
    const here = new WebSocket(socketAddress(agentPath(agent, "terminal"), query));
    here.binaryType = "arraybuffer";
    drawn = 0;
    let open = false;
    here.onopen = () => {
      open = true;
      tries = 0;
    };
    here.onmessage = ({ data }) => {
      if (here === socket) typeof data === "string" ? told(JSON.parse(data)) : draw(here, data);
    };
    here.onclose = (event) => {
      if (here === socket) lost(event, open);
    };
    socket = here;
    show(mode === "control" ? "Taking control …" : "Connecting …");
  }

  function leave() {
    const old = socket;
    socket = null;
    if (old?.readyState === WebSocket.CONNECTING) old.onopen = () => old.close(1000);
    else old?.close(1000);
  }

  /** What the server says of the terminal: its size, before a screen is drawn anew. */
  function told({ screen: { columns, rows } }) {
    shown.resize(columns, rows, { anew: true });
    say(size, `${columns} × ${rows}`);
    show(mode === "control" ? "You are in control" : "Live view");
  }

  /** Draw output; only then is the server told so, and sends more. */
  function draw(here, data) {
    shown.write(new Uint8Array(data), () => {
      if (here !== socket) return;
      drawn += data.byteLength;
      if (here.readyState === WebSocket.OPEN) here.send(JSON.stringify({ ack: drawn }));
    });
  }

  function lost(event, opened) {
    socket = null;
    const wasControl = mode === "control";
    mode = "view";
    if (event.code === ENDED) {
      ended = true;
      return show("The agent has ended");
    }
    if (event.code === LOGGED_OUT) return show("Logged out");
    if (wasControl) {
      const why = event.code === DETACHED ? "Another terminal has taken control, or you have detached." : event.reason;
      notify(why || "You are no longer in control.", opened ? "info" : "error");
      return connect("view");
    }
    const wait = RETRY[Math.min(tries++, RETRY.length - 1)];
    const why = event.code === GOING_AWAY ? "The server has gone" : event.reason || "The connection is lost";
    show(`${why}; trying again …`);
    retry = setTimeout(() => connect("view"), wait * 1000);
  }

  async function takeControl() {
    const text = `What you type goes straight to ${agent.name}. A terminal that is attached to it elsewhere is detached.`;
    if (!(await confirm(`Take control of ${agent.name}?`, text, "Take control"))) return;
    try {
      await post(agentPath(agent, "control"), { takeover: true }, { team: agent.team });
    } catch (error) {
      return notify(error.message, "error");
    }
    connect("control");
    shown?.terminal.focus();
  }

  function typed(data) {
    if (mode !== "control" || socket?.readyState !== WebSocket.OPEN) return;
    if (ctrl && data.length === 1 && data[0] >= 0x40) data = Uint8Array.of(data[0] & CTRL);
    holdCtrl(false);
    for (let at = 0; at < data.length; at += MOST) socket.send(data.subarray(at, at + MOST));
  }

  function pressKey(code, arrow) {
    if (code === null) holdCtrl(!ctrl);
    else if (!arrow) typed(new TextEncoder().encode(code));
    else {
      const start = ctrl ? "\x1b[1;5" : shown.terminal.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
      typed(new TextEncoder().encode(start + code));
    }
    shown.terminal.focus();
  }

  function holdCtrl(held) {
    ctrl = held;
    set(ctrlKey, "aria-pressed", String(held));
  }

  function show(text) {
    const control = mode === "control" && socket !== null;
    say(state, text);
    whole.classList.toggle("control", control);
    take.hidden = control;
    release.hidden = !control;
    set(take, "disabled", ended);
    bar.hidden = !control;
    if (shown) shown.terminal.options.disableStdin = !control;
  }

  show("Connecting …");
  load();

  return {
    update(entry) {
      agent = entry;
      if (entry.id !== session) {
        session = entry.id;
        if (ended && entry.group !== "done") {
          ended = false;
          connect("view");
        }
      }
    },
    close() {
      closed = true;
      clearTimeout(retry);
      leave();
      shown?.close();
    },
  };
}
