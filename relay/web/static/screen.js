/** A terminal's screen, drawn by xterm.js: scaled to the page, with nothing that an agent's output could set off. */

import "./xterm_styles.js";
import { Terminal } from "./vendor/xterm/xterm.mjs";

const FONT = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';
const LARGEST = 15; // pixels: the font's size where there is space enough
const READABLE = 10; // pixels: a screen that is too tall becomes no smaller than that, and scrolls
const SMALLEST = 3;
const TALL = 1.4; // of a row's height to the font's size, about
const SCROLLBACK = 1000; // lines
const LINE_HEIGHT = 1.15;

/** Control sequences (OSC) that would reach out of the terminal: titles, links, the clipboard, notifications. */
const INERT = [0, 1, 2, 7, 8, 9, 52, 99, 777, 1337];

const THEME = {
  background: "#11151c", foreground: "#d7dde6", cursor: "#d7dde6", cursorAccent: "#11151c",
  selectionBackground: "#3a5a8c", black: "#2a303b", red: "#f0716f", green: "#7fc77b", yellow: "#e2b65f",
  blue: "#73a6f5", magenta: "#c58fe6", cyan: "#5cc4cf", white: "#cdd4de", brightBlack: "#7d8796",
  brightRed: "#ff8f8c", brightGreen: "#9bdd95", brightYellow: "#f3cf86", brightBlue: "#97bfff",
  brightMagenta: "#d9b0f2", brightCyan: "#83dbe4", brightWhite: "#f4f7fb",
};

/**
 * Put a screen into `parent`. It takes the agent's columns and rows, and never sets them. Its font becomes as
 * large as fits, times `zoom`; more than fits scrolls in `parent`.
 */
export function screen(parent, { columns = 80, rows = 24, label, ondata = null } = {}) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const terminal = new Terminal({
    cols: columns, rows, fontFamily: FONT, fontSize: LARGEST, lineHeight: LINE_HEIGHT, theme: THEME,
    scrollback: SCROLLBACK, disableStdin: true, cursorBlink: false, cursorInactiveStyle: "outline",
    smoothScrollDuration: 0, fastScrollSensitivity: 5, minimumContrastRatio: 4.5, logLevel: "off",
    screenReaderMode: localStorage.getItem("reader") === "on", convertEol: false, scrollOnUserInput: true, macOptionIsMeta: true,
  });
  for (const code of INERT) terminal.parser.registerOscHandler(code, () => true);
  terminal.open(parent);
  terminal.textarea.setAttribute("aria-label", label);
  if (ondata) {
    terminal.onData((text) => ondata(new TextEncoder().encode(text)));
    terminal.onBinary((text) => ondata(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  }
  parent.classList.toggle("calm", calm);

  const context = document.createElement("canvas").getContext("2d");
  context.font = `100px ${FONT}`;
  const ratio = context.measureText("W".repeat(10)).width / 1000; // of a character's width to the font's size
  let zoom = Number(localStorage.getItem("zoom")) || 1;

  function fit() {
    const { maxHeight, paddingLeft } = getComputedStyle(parent);
    const width = parent.clientWidth - 2 * parseFloat(paddingLeft);
    if (width <= 0) return;
    const across = width / (terminal.cols * ratio);
    const down = (parseFloat(maxHeight) - 2 * parseFloat(paddingLeft)) / (terminal.rows * TALL);
    const best = Math.min(LARGEST, across, Math.max(down, READABLE));
    const size = Math.max(SMALLEST, Math.floor(best * zoom * 10) / 10);
    if (terminal.options.fontSize !== size) terminal.options.fontSize = size;
  }

  const watcher = new ResizeObserver(fit);
  watcher.observe(parent);

  return {
    terminal,
    /** Take the agent's size, behind what is still to be drawn. anew: with an empty screen. */
    resize(columns, rows, { anew = false } = {}) {
      terminal.write("", () => {
        if (anew) terminal.reset();
        if (columns !== terminal.cols || rows !== terminal.rows) terminal.resize(columns, rows);
        fit();
      });
    },
    /** Draw bytes; `done` is called once they are drawn, so that no more come than can be. */
    write(data, done) {
      terminal.write(data, done);
    },
    /** Whether screen readers get the text, which costs time with much output. Returns the new state. */
    toggleReader() {
      const on = (terminal.options.screenReaderMode = !terminal.options.screenReaderMode);
      localStorage.setItem("reader", on ? "on" : "");
      return on;
    },
    zoom(factor) {
      zoom = factor === 1 ? 1 : Math.min(6, Math.max(0.4, zoom * factor));
      localStorage.setItem("zoom", zoom);
      fit();
    },
    close() {
      watcher.disconnect();
      terminal.dispose();
    },
  };
}
