/** An agent's question as it drew it, and one button for each answer. */

import { agentPath, get, post } from "./api.js";
import { el, keyed, notify, say, set } from "./dom.js";
import { refresh } from "./live.js";

const SETTLES = 400; // milliseconds after a change in which a click may have been meant for what was there before

const page = document.documentElement;
let settling = null;

/** Note that things have moved on the page: a click that follows at once is not taken for an answer. */
export function hasMoved() {
  clearTimeout(settling);
  page.dataset.settling = "";
  settling = setTimeout(() => delete page.dataset.settling, SETTLES);
}

/**
 * Return an element with `update(agent)`, hidden while the agent asks nothing. Every answer names the question
 * that its button was shown with; if the agent is asking something else by now, nothing is typed.
 */
export function questionCard() {
  let agent = null;
  let asked = null; // what is shown, as the API gave it
  let version = null; // what the list says of the question that is shown
  let busy = false;

  const lines = el("pre.asked", { tabindex: 0, "aria-label": "What it asks" });
  const options = el("ol.options");
  const problem = el("p.problem", { role: "alert", hidden: true });
  const own = el("input", { type: "text", autocomplete: "off", maxlength: 1000, "aria-label": "Your own answer" });
  const ownForm = el(
    "form.own",
    {
      onsubmit: (event) => {
        event.preventDefault();
        if (own.value) answer({ text: own.value });
      },
    },
    own,
    el("button", { type: "submit" }, "Answer"),
  );
  const card = el("section.question", { hidden: true }, lines, problem, options, ownForm);

  async function load() {
    const at = version;
    let found = null;
    let error = null;
    try {
      found = await get(agentPath(agent, "question"), { team: agent.team });
    } catch (failure) {
      error = failure;
    }
    if (at === version) show(found, error);
  }

  function show(found, error = null) {
    if (found?.id !== asked?.id) hasMoved();
    asked = found;
    card.hidden = !found && !error;
    say(lines, found ? trimmed(found.lines).join("\n") : "");
    lines.hidden = !found;
    const answers = found?.text || found?.options.length;
    complain(found && !answers ? "Answer it in its terminal: take control there." : (error?.message ?? ""));
    keyed(options, found?.options ?? [], (each) => `${found.id} ${each.number}`, (each) => choice(found, each));
    ownForm.hidden = !found?.text;
    enable();
  }

  function choice(question, option) {
    const text = [el("kbd", {}, String(option.number)), el("span", {}, option.text)];
    const onclick = (event) => {
      const pointed = event.detail > 0; // not by a key, whose button has the focus
      if (pointed && "settling" in page.dataset) notify("Something moved just before you clicked. Nothing was answered.");
      else answer(String(option.number), question);
    };
    const press = el("button.option", { type: "button", onclick });
    press.append(...text);
    if (option.number === question.selected) {
      press.classList.add("selected");
      press.append(el("span.unseen", {}, " (marked by the agent)"));
    }
    return el("li", {}, press);
  }

  async function answer(how, question = asked) {
    if (busy || !question) return;
    busy = true;
    enable();
    try {
      const done = await post(agentPath(agent, "answer"), { question: question.id, answer: how }, { team: agent.team });
      const what = done.option ? `${done.option.number}: ${done.option.text}` : `“${done.typed}”`;
      notify(`Answered ${agent.name} with ${what}`);
      own.value = "";
      show(null);
    } catch (error) {
      await load();
      complain(error.body?.result ? "The question is still on the screen: check its terminal." : error.message);
    } finally {
      busy = false;
      enable();
      refresh("agents", "inbox");
    }
  }

  function complain(text) {
    problem.hidden = !text;
    say(problem, text);
  }

  function enable() {
    for (const each of card.querySelectorAll("button, input")) set(each, "disabled", busy);
  }

  card.update = (entry) => {
    agent = entry;
    set(card, "aria-label", `${agent.name} asks`);
    const now = agent.prompt || agent.question ? `${agent.id} ${agent.since} ${agent.question}` : null;
    if (now === version) return;
    version = now;
    if (now === null) show(null);
    else load();
  };
  return card;
}

/** The lines without the empty ones around them, and without their common indentation. */
function trimmed(lines) {
  const full = lines.map((line) => line.trimEnd());
  while (full.length && !full[0]) full.shift();
  while (full.length && !full.at(-1)) full.pop();
  const indents = full.filter(Boolean).map((line) => line.length - line.trimStart().length);
  const common = Math.min(...indents, 40);
  return full.map((line) => line.slice(common));
}
