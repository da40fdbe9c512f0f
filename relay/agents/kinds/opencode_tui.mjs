// A plugin in opencode's terminal program (checked with 1.18.33): the door of the conversation on its screen.
//
// Only this program knows that conversation, which /new and its lists change; opencode.mjs is in its server. A message
// for a screen without a conversation begins one. The user's half-typed line stays.

import { Door } from "./door.mjs"

const tui = async (api, options) => {
  const door = new Door(options.door)
  const shown = () => (api.route.current.name === "session" ? api.route.current.params.sessionID : undefined)
  const busy = (id) => (api.state.session.status(id)?.type ?? "idle") !== "idle"

  // Begin a conversation, unless the user begins one meanwhile.
  const begun = async () => {
    const { id } = done(await api.client.session.create({}))
    if (shown()) await api.client.session.delete({ sessionID: id })
    else api.route.navigate("session", { sessionID: id })
    return shown()
  }

  door.agent = {
    busy: () => (shown() ? busy(shown()) : api.route.current.name !== "home"),
    give: async (text, id) => {
      const session = shown() ?? (await begun())
      given.set(id, session)
      const { agent, model } = api.state.session.messages(session).findLast(({ role }) => role === "user") ?? {}
      done(await api.client.session.promptAsync({ sessionID: session, agent, model, parts: [{ type: "text", text }] }))
    },
  }

  const given = new Map() // id of a message → its session
  const end = (id, state) => {
    given.delete(id)
    door.end(id, state)
  }
  const working = new Set() // sessions
  api.event.on("session.status", ({ properties: { sessionID, status } }) => {
    if (status.type === "idle") working.delete(sessionID)
    else working.add(sessionID)
    door.works(working.size > 0)
  })
  api.event.on("message.part.updated", ({ properties: { part } }) => {
    if (part.type === "text") end(door.idOf(part.text), "delivered")
  })
  api.event.on("session.error", ({ properties: { sessionID } }) => {
    for (const [id, session] of given) if (session === sessionID) end(id, "refused")
  })
}

function done({ data, error }) {
  if (error) throw error
  return data
}

export default { id: "relay", tui }
