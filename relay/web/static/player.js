/** Plays an asciicast, version 2 or 3 (docs.asciinema.org/manual/asciicast), on a screen. */

const IDLE = 2; // seconds: the longest pause between two events

/**
 * Parse an asciicast into { columns, rows, events }. An event is { at, data } for output, or
 * { at, columns, rows } for a new size; at: seconds, with long pauses shortened. What cannot be read ends it.
 */
export function parse(text) {
  const lines = text.split("\n");
  const header = JSON.parse(lines[0]);
  const relative = header.version === 3; // times since the event before
  const size = relative ? [header.term.cols, header.term.rows] : [header.width, header.height];
  const events = [];
  let before = 0;
  let at = 0;
  for (const line of lines.slice(1)) {
    if (!line || line.startsWith("#")) continue;
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      break; // still being written
    }
    const [when, kind, data] = event;
    at += Math.min(IDLE, Math.max(0, relative ? when : when - before));
    before = when;
    if (kind === "o") events.push({ at, data });
    else if (kind === "r") {
      const [columns, rows] = data.split("x").map(Number);
      if (columns > 0 && rows > 0) events.push({ at, columns, rows });
    }
  }
  return { columns: size[0], rows: size[1], events };
}

export class Player {
  /** onchange is called whenever the place or the state changes. */
  constructor(text, screen, onchange) {
    Object.assign(this, parse(text));
    this.length = this.events.at(-1)?.at ?? 0;
    this.at = 0;
    this.speed = 1;
    this.playing = false;
    this._screen = screen;
    this._onchange = onchange;
    this._next = 0; // the event that comes next
    this._frame = null;
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.at >= this.length) this.seek(0);
    this.playing = true;
    let last = performance.now();
    const step = (now) => {
      this.at = Math.min(this.length, this.at + ((now - last) / 1000) * this.speed);
      last = now;
      this._draw(() => {
        if (!this.playing) return;
        if (this.at >= this.length) this.pause();
        else this._frame = requestAnimationFrame(step);
      });
      this._onchange();
    };
    this._frame = requestAnimationFrame(step);
    this._onchange();
  }

  pause() {
    this.playing = false;
    cancelAnimationFrame(this._frame);
    this._onchange();
  }

  /** Show the screen at `at`, in seconds. */
  seek(at) {
    if (at < this.at || this._next === 0) {
      this._next = 0;
      this._screen.resize(this.columns, this.rows, { anew: true });
    }
    this.at = at;
    this._draw();
    this._onchange();
  }

  /** Draw all events up to the present place, then call `done`. */
  _draw(done) {
    let data = "";
    const flush = () => {
      if (data) this._screen.write(data);
      data = "";
    };
    for (; this._next < this.events.length && this.events[this._next].at <= this.at; this._next++) {
      const event = this.events[this._next];
      if (event.data !== undefined) data += event.data;
      else {
        flush();
        this._screen.resize(event.columns, event.rows);
      }
    }
    this._screen.write(data, done);
  }
}
