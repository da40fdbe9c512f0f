// The door of an agent: a socket of the run, at which its session hands over texts.
//
//     {"offer": ID, "text": TEXT}  →  {"id": ID, "state": "accepted"}, "busy" or "refused"
//                                     and once it is accepted, "delivered", or "busy" or "refused" if it was not taken
//     {"withdraw": ID}             →  {"id": ID, "state": "withdrawn"}, or "accepted" or "delivered": too late
//
// One at a time, and each id once. A withdrawn one is never taken, even if the offer of a session that has died is
// read only now: so the session can give the text another way. One that is accepted when it is withdrawn keeps no
// others waiting. The file `working` exists while the agent works.

import { rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { parsed } from "./bridge.mjs"

export class Door {
  // agent: { busy(): it takes nothing now; give(text, id): hands over, throws if it cannot }; undefined: it is busy
  constructor({ socket, working }) {
    this.working = working
    this.agent = undefined
    this.states = new Map() // id → "accepted", "delivered" or "withdrawn"
    this.given = new Map() // id → { text, peer, doubted }: accepted, no more is known
    try {
      for (const each of [socket, working]) rmSync(each, { force: true }) // of an agent that was killed
      const server = createServer((peer) => this.listen(peer))
      server.on("error", () => {})
      server.listen(socket).unref()
    } catch {
      // Texts are typed.
    }
  }

  works(yes) {
    try {
      if (yes) writeFileSync(this.working, "")
      else rmSync(this.working, { force: true })
    } catch {
      // It is asked with each offer, too.
    }
  }

  listen(peer) {
    let read = ""
    peer.unref()
    peer.setEncoding("utf8")
    peer.on("error", () => {}) // the session has gone
    peer.on("data", (data) => {
      const lines = (read + data).split("\n")
      read = lines.pop()
      for (const line of lines) this.answer(peer, parsed(line))
    })
  }

  answer(peer, { offer, withdraw, text }) {
    const state = this.states.get(offer ?? withdraw)
    if (typeof (withdraw ?? (offer && text)) !== "string") return // not our session
    if (withdraw) {
      if (state === "accepted") Object.assign(this.given.get(withdraw), { peer, doubted: true })
      if (!state) this.states.set(withdraw, "withdrawn")
      reply(peer, withdraw, state ?? "withdrawn")
    } else if (state) {
      reply(peer, offer, state === "withdrawn" ? "refused" : state)
    } else if (this.busy()) {
      reply(peer, offer, "busy")
    } else {
      this.given.set(offer, { text, peer, doubted: false })
      this.states.set(offer, "accepted")
      reply(peer, offer, "accepted")
      this.give(text, offer)
    }
  }

  busy() {
    return !this.agent || [...this.given.values()].some(({ doubted }) => !doubted) || this.agent.busy()
  }

  async give(text, id) {
    try {
      await this.agent.give(text, id)
    } catch {
      this.end(id, "refused")
    }
  }

  // Return the id of the text in a prompt, or undefined.
  idOf(prompt) {
    for (const [id, { text }] of this.given) if (prompt.includes(text)) return id
  }

  // state: "delivered"; "busy" or "refused" if it has certainly not been taken. Without an accepted id: nothing.
  end(id, state) {
    const given = this.given.get(id)
    if (!given) return
    this.given.delete(id)
    if (state === "delivered") this.states.set(id, state)
    else if (given.doubted) this.states.set(id, "withdrawn")
    else this.states.delete(id)
    reply(given.peer, id, state)
  }
}

function reply(peer, id, state) {
  peer.write(JSON.stringify({ id, state }) + "\n")
}
