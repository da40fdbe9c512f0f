// A session's side of a door (relay/agents/kinds/door.mjs), for programs of tests.

import { connect } from "node:net"

export class Client {
  constructor(path) {
    this.answers = []
    this.waiting = []
    this.peer = connect(path)
    let read = ""
    this.peer.on("data", (data) => {
      const lines = (read + data).split("\n")
      read = lines.pop()
      for (const line of lines) this.take(JSON.parse(line).state)
    })
  }

  take(state) {
    const first = this.waiting.shift()
    if (first) first(state)
    else this.answers.push(state)
  }

  // Return the next state that the door reports.
  next() {
    if (this.answers.length) return this.answers.shift()
    return new Promise((resolve) => this.waiting.push(resolve))
  }

  send(line) {
    this.peer.write(line + "\n")
  }

  offer(id, text = `[${id}]`) {
    this.send(JSON.stringify({ offer: id, text }))
    return this.next()
  }

  withdraw(id) {
    this.send(JSON.stringify({ withdraw: id }))
    return this.next()
  }

  close() {
    this.peer.destroy()
  }
}
