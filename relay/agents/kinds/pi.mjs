// relay's extension for pi, for one run of it (relay.agents.kinds.pi names it on the command line).
//
//     pi's events ──→ the hooks of docs/PATTERNS.md ──→ their replies, in pi's terms
//     message_end ──→ the transcript: each text that the model has completed, and the tokens of each answer
//     door.mjs ──→ a prompt, while pi is idle; message_end shows that pi has taken it
//
// pi makes another instance for each of its sessions: /new, /resume, /fork and /reload end this one. The door survives
// that, and text that the model has yet to receive: `lesson` for the session that has begun, `held` for any session.

import { randomUUID } from "node:crypto"
import { Bridge } from "./bridge.mjs"
import { Door } from "./door.mjs"

const STARTED = { startup: "startup", new: "clear", resume: "resume", fork: "resume" }
const TOOLS = { bash: "Bash", edit: "Edit", find: "Glob", grep: "Grep", ls: "LS", read: "Read", write: "Write" }
const FILES = new Set(["edit", "read", "write"]) // whose `path` Claude Code calls `file_path`
const CUT_OFF = new Set(["aborted", "error"]) // stop reasons: the user's Esc, and an API error that pi may try again
const COMPACTED = 300_000 // milliseconds: pi 0.x does not report a compaction that fails

const waiting = (globalThis[Symbol.for("relay.waiting")] ??= { lesson: "", held: [], door: undefined })

export default (options) => (pi) => {
  const bridge = new Bridge(options)
  const door = (waiting.door ??= new Door(options.door))
  const run = randomUUID()
  const begun = new Map() // tool calls: when each was requested
  let said = 0
  let answers = 0
  let resent // the user's prompt that joins the turn of another
  let compaction // the signal of the one that runs, beside which a prompt would be lost; isIdle() knows since 1.x

  // Report an event to the session; return its reply. The user's Esc ends the wait.
  const tell = async (event, ctx, fields, signal = ctx.signal) => {
    const { sessionManager: session, cwd } = ctx
    const common = { session_id: session.getSessionId(), session_file: session.getSessionFile?.(), cwd }
    const reply = await bridge.tell(event, { ...common, ...fields }, signal)
    const more = reply.hookSpecificOutput ?? {}
    if (reply.systemMessage && ctx.hasUI) ctx.ui.notify(reply.systemMessage, "info")
    return { ...reply, ...more, refused: reply.decision === "block" }
  }
  const hold = ({ additionalContext: text }) => text && waiting.held.push(context(text))
  const release = () => {
    const texts = [waiting.lesson, ...waiting.held.splice(0)].filter(Boolean)
    waiting.lesson = ""
    return texts.join("\n\n")
  }
  const message = (content) => ({ customType: "relay", content, display: true })
  const start = async (ctx, source) => {
    const { additionalContext: text } = await tell("SessionStart", ctx, { source })
    waiting.lesson = text ? context(text) : ""
  }

  pi.on("session_start", async (event, ctx) => {
    door.agent = {
      busy: () => !ctx.isIdle() || compaction?.aborted === false,
      give: (text) => pi.sendUserMessage(text),
    }
    if (event.reason === "reload") return
    const old = ctx.sessionManager.getEntries().some((entry) => entry.type === "message")
    const source = event.reason === "startup" && old ? "resume" : (STARTED[event.reason] ?? "startup")
    await start(ctx, source)
  })

  pi.on("session_shutdown", async (event, ctx) => {
    door.agent = undefined
    if (event.reason !== "reload") await tell("SessionEnd", ctx, { reason: event.reason ?? "quit" })
  })

  pi.on("session_before_compact", async (event, ctx) => {
    compaction = event.signal
    setTimeout(() => (compaction = undefined), COMPACTED).unref()
    const trigger = (event.reason ?? "manual") === "manual" ? "manual" : "auto"
    const reply = await tell("PreCompact", ctx, { trigger }, event.signal)
    return reply.refused ? { cancel: true } : undefined
  })

  pi.on("session_compact", (_, ctx) => {
    compaction = undefined
    return start(ctx, "compact")
  })

  // pi refuses a second prompt, and with it the text, if the first one's turn has begun while the hook ran.
  pi.on("input", async (event, ctx) => {
    if (event.text === resent) return (resent = undefined)
    const id = door.idOf(event.text)
    const idle = ctx.isIdle()
    const reply = await tell("UserPromptSubmit", ctx, { prompt: event.text })
    if (reply.refused) {
      door.end(id, "refused")
      if (ctx.hasUI) ctx.ui.notify(reply.reason, "warning")
      return { action: "handled" }
    }
    hold(reply)
    if (idle && !ctx.isIdle()) {
      if (id) door.end(id, "busy")
      else {
        resent = event.text
        pi.sendUserMessage([{ type: "text", text: resent }, ...(event.images ?? [])], { deliverAs: "steer" })
      }
      return { action: "handled" }
    }
  })

  pi.on("agent_start", () => door.works(true))

  pi.on("before_agent_start", () => {
    const text = release()
    if (text) return { message: message(text) }
  })

  pi.on("message_end", (event) => {
    const { role, content, stopReason, usage } = event.message
    if (role === "assistant" && usage) {
      const { input, output, cacheRead, cacheWrite, cost } = usage
      const tokens = { input, output, cache_read: cacheRead, cache_write: cacheWrite }
      bridge.used(`${run}/${++answers}`, event.message.model, tokens, cost?.total)
    }
    if (role === "user") door.end(door.idOf(texts(content).join("\n")), "delivered")
    if (role !== "assistant" || CUT_OFF.has(stopReason)) return
    for (const text of texts(content)) bridge.said(`${run}/${++said}`, text)
  })

  pi.on("tool_call", async (event, ctx) => {
    begun.set(event.toolCallId, Date.now())
    const reply = await tell("PreToolUse", ctx, call(event))
    if (ctx.signal?.aborted) return { block: true, reason: "The user has interrupted it." }
    if (reply.permissionDecision === "deny") return { block: true, reason: reply.permissionDecisionReason }
    hold(reply)
    if (reply.updatedInput) {
      for (const key of Object.keys(event.input)) delete event.input[key]
      Object.assign(event.input, renamed(event.toolName, reply.updatedInput, "file_path", "path"))
    }
  })

  pi.on("tool_result", async (event, ctx) => {
    if (ctx.signal?.aborted) return // the turn ends with it, and the model would read nothing added here
    const took = Date.now() - (begun.get(event.toolCallId) ?? Date.now())
    begun.delete(event.toolCallId)
    const fields = { ...call(event), duration_ms: took }
    const reply = event.isError
      ? await tell("PostToolUseFailure", ctx, { ...fields, error: texts(event.content).join("\n") })
      : await tell("PostToolUse", ctx, {
          ...fields,
          tool_response: { content: event.content, details: event.details },
        })
    hold(reply)
    const text = release()
    if (text) return { content: [...event.content, { type: "text", text }] }
  })

  pi.on("agent_end", async (event, ctx) => {
    door.works(false)
    begun.clear()
    const last = event.messages.findLast(({ role }) => role === "assistant")
    if (!last || CUT_OFF.has(last.stopReason)) return // pi may try again; its screen shows the outcome
    const reply = await tell("Stop", ctx, { last_assistant_message: texts(last.content).at(-1) ?? "" })
    if (reply.refused) waiting.held.push(reply.reason)
    const text = waiting.held.splice(0).join("\n\n")
    if (text) pi.sendMessage(message(text), { triggerTurn: true, deliverAs: "followUp" })
  })
}

// Text for the model that is nobody's prompt.
function context(text) {
  return `<hook_context>\n${text}\n</hook_context>`
}

function texts(content) {
  return (Array.isArray(content) ? content : []).filter(({ type, text }) => type === "text" && text.trim()).map(({ text }) => text)
}

// The call as Claude Code would report it.
function call({ toolName, toolCallId, input }) {
  const tool_input = renamed(toolName, input, "path", "file_path")
  return { tool_name: TOOLS[toolName] ?? toolName, tool_use_id: toolCallId, tool_input }
}

function renamed(tool, input, from, to) {
  const names = FILES.has(tool) ? { [from]: to } : {}
  return Object.fromEntries(Object.entries(input).map(([name, value]) => [names[name] ?? name, value]))
}
