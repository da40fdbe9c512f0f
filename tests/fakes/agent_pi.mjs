// pi as its extensions see it: it takes each prompt once a test lets it.
//
//     AGENT_FOLDER=FOLDER pi --extension FILE
//
// FOLDER/pid      its process
// FOLDER/prompts  a line of JSON for each prompt that its extensions have let through
// FOLDER/go       exists: it takes them, and answers
// FOLDER/taken    a line of JSON for each prompt that it has taken, and for each reply to its hooks

import { appendFileSync, existsSync, writeFileSync } from "node:fs"
import { pathToFileURL } from "node:url"

const folder = process.env.AGENT_FOLDER
const words = process.argv.slice(2)
const handlers = {}
let streaming = false

const ctx = {
  cwd: process.cwd(),
  hasUI: false,
  isIdle: () => !streaming,
  sessionManager: { getSessionId: () => "S", getEntries: () => [] },
}
const pi = {
  on: (event, handler) => (handlers[event] = handler),
  sendMessage: ({ content }) => note("taken", content),
  sendUserMessage: (text) => void prompt(text, "extension"),
}

const fire = (type, fields) => handlers[type]?.({ type, ...fields }, ctx)
const note = (file, value) => appendFileSync(`${folder}/${file}`, JSON.stringify(value) + "\n")
const message = (role, text) => ({ role, content: [{ type: "text", text }], stopReason: "stop" })

async function prompt(text, source) {
  if ((await fire("input", { text, source }))?.action === "handled") return
  note("prompts", text)
  while (!existsSync(`${folder}/go`)) await new Promise((resolve) => setTimeout(resolve, 10))
  streaming = true
  const beside = await fire("before_agent_start")
  await fire("agent_start")
  note("taken", text) // before it says so: relay then reports that the text has arrived
  if (beside?.message) note("taken", beside.message.content)
  await fire("message_end", { message: message("user", text) })
  const answer = message("assistant", "Done.")
  await fire("message_end", { message: answer })
  streaming = false
  await fire("agent_end", { messages: [answer] })
}

writeFileSync(`${folder}/pid`, String(process.pid))
const file = words[words.indexOf("--extension") + 1]
;(await import(pathToFileURL(file))).default(pi)
await fire("session_start", { reason: "startup" })
process.stdin.resume()
