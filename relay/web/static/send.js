/** The box that sends a message. */

import { post } from "./api.js";
import { el, notify, set } from "./dom.js";
import { refresh } from "./live.js";

/** Return a form. to: the receiver, or null for one that the user chooses among `names()`. */
export function sendBox({ team, to = null, names = () => [] }) {
  const id = `send-${Math.random().toString(36).slice(2)}`;
  const options = el("datalist", { id: `${id}-names` });
  const receiver = el("input.to", {
    id: `${id}-to`, list: `${id}-names`, placeholder: "Name", autocomplete: "off", required: true,
    "aria-label": "To", onfocus: () => options.replaceChildren(...names().map((name) => el("option", { value: name }))),
  });
  const text = el("textarea", {
    rows: 1, placeholder: to ? `Message ${to}` : "Message", "aria-label": to ? `Message to ${to}` : "Message",
    required: true,
    oninput: () => grow(),
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    },
  });
  const submit = el("button.primary", { type: "submit" }, "Send");
  const form = el("form.send", { onsubmit: send }, to ? null : receiver, to ? null : options, text, submit);

  function grow() {
    text.rows = Math.min(8, text.value.split("\n").length);
  }

  async function send(event) {
    event.preventDefault();
    const name = to ?? receiver.value.trim();
    set(submit, "disabled", true);
    try {
      await post("/api/messages", { to: name, text: text.value }, { team: typeof team === "function" ? team() : team });
      text.value = "";
      grow();
      notify(`Sent to ${name}.`);
      refresh("messages");
    } catch (error) {
      notify(error.message, "error");
    } finally {
      set(submit, "disabled", false);
      text.focus();
    }
  }

  form.address = (name) => {
    receiver.value = name;
  };
  return form;
}
