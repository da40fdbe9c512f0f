/** Elements without HTML: whatever an agent says becomes a text node, and nothing parses it. */

/**
 * Make an element. `what` is a tag with classes, as "button.primary". A property that starts with "on" is a
 * listener; true and false set and omit an attribute; every other value is an attribute's text.
 */
export function el(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else set(element, name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Set an attribute, or remove it if `value` is false, null or undefined. */
export function set(element, name, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== (value === true ? "" : String(value))) {
    element.setAttribute(name, value === true ? "" : value);
  }
}

/** Set the text of an element, unless it is the same: a selection in it stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const keys = new WeakMap();

/**
 * Make the children of `parent` those of `items`, in order. What is there already stays: its focus, selection
 * and scroll position, too. `create` returns an element for an item, with the method `update(item)`.
 * Returns whether any child came, went or moved.
 */
export function keyed(parent, items, keyOf, create) {
  const focused = document.activeElement;
  const old = new Map([...parent.children].map((child) => [keys.get(child), child]));
  let place = parent.firstElementChild;
  let changed = false;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = create(item);
      keys.set(child, key);
    }
    child.update?.(item);
    if (child === place) place = place.nextElementSibling;
    else {
      parent.insertBefore(child, place);
      changed = true;
    }
  }
  for (const child of old.values()) child.remove();
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  return changed || old.size > 0;
}

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  back: "M10 3 5 8l5 5",
  close: "m4 4 8 8m0-8-8 8",
  fit: "M3 6V3h3m4 0h3v3m0 4v3h-3m-4 0H3v-3",
  minus: "M3.5 8h9",
  pause: "M5.5 3.5v9m5-9v9",
  play: "m5 3 8 5-8 5z",
  plus: "M8 3.5v9M3.5 8h9",
};

/** Return a picture that screen readers skip: the button that has it bears a label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button; `label` is for those who cannot see its icon. */
export function button(text, onclick, { style = "", label = null, ...more } = {}) {
  const classes = style ? `button.${style}` : "button";
  return el(classes, { type: "button", onclick, "aria-label": label, title: label, ...more }, text);
}

const notices = () => document.getElementById("notices");

/** Say something for a few seconds at the edge of the page, and to screen readers. */
export function notify(text, kind = "info") {
  const close = button(icon("close"), () => shown.remove(), { style: "plain", label: "Dismiss" });
  const shown = el(`p.notice.${kind}`, {}, el("span", {}, text), close);
  notices().append(shown);
  while (notices().children.length > 4) notices().firstElementChild.remove();
  if (kind !== "error") setTimeout(() => shown.remove(), 8000);
}

/** Ask in a dialog. Resolves to true only for a click on, or a key at, its button `action`. */
export function confirm(title, text, action, style = "primary") {
  return new Promise((resolve) => {
    const ask = el(
      "dialog.ask",
      { "aria-labelledby": "ask-title", "aria-describedby": "ask-text", onclose: () => finish() },
      el("h2", { id: "ask-title" }, title),
      el("p", { id: "ask-text" }, text),
      el(
        "div.actions",
        {},
        button("Cancel", () => ask.close("")),
        button(action, () => ask.close("yes"), { style }),
      ),
    );
    const finish = () => {
      ask.remove();
      resolve(ask.returnValue === "yes");
    };
    document.body.append(ask);
    ask.showModal();
  });
}

/** The heading of a page, and what stands beside it. */
export function heading(text, ...beside) {
  return el("div.heading", {}, el("h1", { tabindex: -1 }, text), ...beside);
}

/** What a page shows when it has nothing to show. */
export function empty(title, text) {
  return el("div.empty", {}, el("p.title", {}, title), el("p", {}, text));
}
