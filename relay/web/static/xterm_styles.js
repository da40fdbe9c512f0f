/**
 * Lets xterm.js style itself under `style-src 'self'`.
 *
 * It writes its rules as the text of <style> elements, and 24-bit colours by setAttribute("style"). The policy
 * refuses both, because a page's HTML could contain them. Its own way for scripts is the CSSOM, which takes the
 * same rules: so they go there. Import this module before xterm.js creates a terminal.
 */

const sheets = new WeakMap();
const text = Object.getOwnPropertyDescriptor(Node.prototype, "textContent");
const { remove } = Element.prototype;

function drop(sheet) {
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
}

Object.defineProperty(HTMLStyleElement.prototype, "textContent", {
  get() {
    return text.get.call(this);
  },
  set(rules) {
    let sheet = sheets.get(this);
    if (!sheet) {
      sheet = new CSSStyleSheet();
      sheets.set(this, sheet);
      document.adoptedStyleSheets.push(sheet);
    }
    sheet.replaceSync(rules);
  },
});

HTMLStyleElement.prototype.remove = function () {
  drop(sheets.get(this));
  remove.call(this);
};

HTMLSpanElement.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};
