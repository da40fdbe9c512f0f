// The bridge to relay from our plugin in an agent without hooks of its own.
//
//     const bridge = new Bridge(options)                       options: relay.agents.hook_setup.plugin_options
//     await bridge.tell("PreToolUse", { session_id, ... })     the session's reply, parsed; {} if it has none
//     bridge.said(id, text)                                    the agent has said `text`, all of it
//     bridge.used(id, model, { input, ... }, cost)             the tokens that an answer of the model has used
//
// Events go to the session through hook_client.py, whose time limits and guards apply; texts are appended to the
// transcript (docs/PATTERNS.md has the formats of both). Nothing here throws: the agent continues without relay.

import { spawn } from "node:child_process"
import { appendFileSync } from "node:fs"

export class Bridge {
  // hook: the client's command line, with EVENT in place of the event's name; timeout: seconds.
  constructor({ hook, transcript, timeout }) {
    this.hook = hook
    this.transcript = transcript
    this.timeout = timeout
  }

  // signal: an AbortSignal that ends the wait.
  tell(event, fields, signal) {
    return new Promise((resolve) => {
      const common = { hook_event_name: event, transcript_path: this.transcript, cwd: process.cwd() }
      let printed = ""
      try {
        const [program, ...words] = this.hook.map((word) => (word === "EVENT" ? event : word))
        const child = spawn(program, words, { stdio: ["pipe", "pipe", "ignore"], signal })
        // Not spawn's own `timeout`, whose timer outlives a program that could not be started.
        const timer = setTimeout(() => child.kill("SIGKILL"), this.timeout * 1000)
        child.on("error", () => {
          clearTimeout(timer)
          resolve({})
        })
        child.on("exit", () => clearTimeout(timer))
        child.on("close", () => resolve(parsed(printed)))
        child.stdin.on("error", () => {}) // it exited before reading everything
        child.stdout.setEncoding("utf8")
        child.stdout.on("data", (text) => (printed += text))
        child.stdin.end(written({ ...common, ...fields }))
      } catch {
        resolve({})
      }
    })
  }

  // id: unique in this run; time: of the text, if not now; subagent, agent_type: of the speaker.
  said(id, text, { time = new Date(), subagent = "", agent_type = "" } = {}) {
    this.append({ type: "said", id, time: time.toISOString(), text, subagent, agent_type })
  }

  // id: of the answer, unique in this run; cost: US dollars, 0 if unknown.
  used(id, model, { input = 0, output = 0, cache_read = 0, cache_write = 0 }, cost = 0) {
    if (!(input || output || cache_read || cache_write)) return
    const time = new Date().toISOString()
    this.append({ type: "usage", id, time, model, input, output, cache_read, cache_write, cost })
  }

  append(entry) {
    try {
      appendFileSync(this.transcript, written(entry) + "\n", { mode: 0o600 })
    } catch {
      // The session gets the last text of a turn from the Stop event.
    }
  }
}

function written(value) {
  try {
    return JSON.stringify(value)
  } catch {
    return "" // a guarded tool call that cannot be written is denied
  }
}

export function parsed(text) {
  try {
    const value = JSON.parse(text)
    return value !== null && typeof value === "object" ? value : {}
  } catch {
    return {} // mostly "": there is no reply
  }
}
