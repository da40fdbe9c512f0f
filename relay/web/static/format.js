/** Numbers and times in words. */

/** Seconds as "now", "42s", "5m", "3h" or "2d". */
export function duration(seconds) {
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** Seconds of a recording as "1:05" or "1:02:03". */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) parts.shift();
  return parts.map((part, place) => (place ? String(part).padStart(2, "0") : part)).join(":");
}

/** A number of tokens as "950", "12k" or "3.4M". */
export function tokens(number) {
  if (number < 1000) return String(number);
  if (number < 999_500) return `${Math.round(number / 1000)}k`;
  return `${(number / 1e6).toFixed(1)}M`;
}

/** US dollars, or "" if unknown. */
export function money(dollars) {
  return dollars === null || dollars === undefined ? "" : `$${dollars.toFixed(2)}`;
}

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  return number < 1e6 ? `${Math.round(number / 1000)} kB` : `${(number / 1e6).toFixed(1)} MB`;
}

const today = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** A time (seconds since the epoch) as "14:05", of another day as "3 Nov, 14:05". */
export function time(seconds) {
  const date = new Date(seconds * 1000);
  return (date.toDateString() === new Date().toDateString() ? today : day).format(date);
}

export function many(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Let the text of each <time data-since> follow the clock. */
export function keepTime() {
  const tick = () => {
    const now = Date.now() / 1000;
    for (const each of document.querySelectorAll("time[data-since]")) {
      const text = duration(now - Number(each.dataset.since));
      if (each.textContent !== text) each.textContent = text;
    }
  };
  setInterval(tick, 1000);
  return tick;
}

/** Show in `element` how long ago `since` (seconds since the epoch, or null) was. */
export function showSince(element, since) {
  if (since === null || since === undefined) {
    delete element.dataset.since;
    element.textContent = "";
    return;
  }
  element.dataset.since = since;
  element.dateTime = new Date(since * 1000).toISOString();
  element.title = new Date(since * 1000).toLocaleString();
  element.textContent = duration(Date.now() / 1000 - since);
}
