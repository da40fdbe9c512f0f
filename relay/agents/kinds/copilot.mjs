// relay's extension for GitHub Copilot CLI, for one run of it (relay.agents.kinds.copilot makes it part of a plug-in).
//
//     its start ──→ SessionStart, which Copilot's own hooks report only with the first prompt
//     door.mjs ──→ a prompt, while Copilot is idle; user.message shows that it has taken it
//
// Copilot starts it again for each of its sessions: /clear and /resume end this process.

import { join } from "node:path"
import { joinSession } from "@github/copilot-sdk/extension"
import { Bridge } from "./bridge.mjs"
import { Door } from "./door.mjs"

export default async (options) => {
  const session = await joinSession({}) // with hooks or tools, it would ask the user
  const door = new Door(options.door)
  const sent = new Map() // offers: Copilot's id of each prompt
  let busy = false

  const works = (yes) => {
    busy = yes
    door.works(yes)
  }

  session.on("user.message", ({ data, agentId }) => {
    if (agentId) return
    works(true)
    door.end(door.idOf(data.content), "delivered")
  })
  session.on("assistant.turn_start", () => works(true))
  session.on("session.idle", () => works(false))
  session.on("session.warning", ({ data }) => {
    for (const [id, prompt] of sent) if (prompt === data.originatingMessageId) door.end(id, "refused") // by a hook
  })

  door.agent = {
    busy: () => busy,
    give: async (text, id) => sent.set(id, await session.send({ prompt: text, mode: "enqueue" })),
  }
  const events = await session.getEvents()
  const source = events.some(({ type }) => type === "user.message") ? "resume" : "startup"
  const transcript_path = session.workspacePath && join(session.workspacePath, "events.jsonl")
  await new Bridge(options).tell("SessionStart", { session_id: session.sessionId, transcript_path, source })
}
