/**
 * Lets xterm.js style itself under `style-src 'self'`.
 *
 * It writes its rules as the text of <style> elements, and 24-bit colours by setAttribute("style"). The policy
 * refuses both, because a page's HTML could contain them; scripts have the CSSOM, which takes the same rules.
 * Import this module before a terminal is created.
 */

/** Stands in for a <style> element. */
class Rules extends HTMLElement {
  #sheet = new CSSStyleSheet();

  get textContent() {
    return "";
  }

  set textContent(rules) {
    this.#sheet.replaceSync(rules);
  }

  connectedCallback() {
    document.adoptedStyleSheets.push(this.#sheet);
  }

  disconnectedCallback() {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== this.#sheet);
  }
}

customElements.define("relay-rules", Rules);
const create = Document.prototype.createElement;
document.createElement = (name, ...more) => create.call(document, name === "style" ? "relay-rules" : name, ...more);

HTMLSpanElement.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};
