// A plugin for opencode (checked with 1.18.33): reports to relay what opencode does and says, and applies the replies.
//
// relay.agents.opencode adds it to one run. Its events are in relay's own dialect (docs/PATTERNS.md); tools and their
// arguments have Claude Code's names. A text is said once the model has completed it; one cut off by Esc never is.

import { Bridge } from "./bridge.mjs"

const TOOLS = {
  bash: "Bash",
  read: "Read",
  edit: "Edit",
  write: "Write",
  grep: "Grep",
  glob: "Glob",
  list: "LS",
  webfetch: "WebFetch",
  websearch: "WebSearch",
  todowrite: "TodoWrite",
  task: "Task",
  skill: "Skill",
  question: "AskUserQuestion",
  plan_exit: "ExitPlanMode",
}

const FIELDS = { filePath: "file_path", oldString: "old_string", newString: "new_string", replaceAll: "replace_all" }
const OWN_FIELDS = Object.fromEntries(Object.entries(FIELDS).map(([own, claudes]) => [claudes, own]))

const AFTER_ITS_ERROR = [500, 2500] // milliseconds; its error came within 130 on a quiet machine

// opencode loads a plugin once for each folder of its sessions; all share the following.
const sessions = new Map() // id → { parent, agent, model, last: its last text in this turn, error }
const summaries = new Set() // ids of messages that summarise a conversation
const compactions = new Map() // session → "auto" or "manual"
const calls = new Map() // id of a running tool call → what was reported of it
let current // the session that the user talks to
let waiting = "" // context for the next prompt
let goesOn // the text that continues a turn
let bridge

export const RelayPlugin = async ({ client, directory }) => {
  const options = JSON.parse(process.env.RELAY_BRIDGE || "null")
  if (!options) return {}
  const first = !bridge
  bridge ??= new Bridge(options)

  const show = (message, variant) => quietly(client.tui.showToast({ body: { message, variant } }))

  const tell = async (event, id, fields = {}) => {
    const reply = await bridge.tell(event, { session_id: id, cwd: directory, ...who(id), ...fields })
    if (reply.systemMessage) show(reply.systemMessage, "info")
    return { ...reply, ...reply.hookSpecificOutput }
  }

  // Events that opencode does not wait for are reported in order, and before the next prompt.
  let told = Promise.resolve()
  const later = (task) => (told = told.then(task).catch(() => {}))

  const session = async (id) => {
    if (!sessions.has(id)) {
      const found = await quietly(client.session.get({ path: { id } }))
      const messages = await quietly(client.session.messages({ path: { id } }))
      sessions.set(id, { parent: found?.data?.parentID, old: messages?.data?.length > 0 })
    }
    return sessions.get(id)
  }

  const prompted = async (id, text) => {
    const { old } = await session(id)
    if (current !== id && (current || old)) {
      waiting = context(await tell("SessionStart", id, { source: old ? "resume" : "clear" }))
    }
    current = id
    const reply = await tell("UserPromptSubmit", id, { prompt: text })
    if (reply.decision === "block") {
      // opencode then shows "Unexpected server error" in the same place, and no event says when.
      for (const delay of AFTER_ITS_ERROR) setTimeout(() => show(reply.reason, "warning"), delay).unref()
      throw new Error(reply.reason)
    }
    const found = [waiting, context(reply)].filter(Boolean).join("\n\n")
    waiting = ""
    return found
  }

  const ended = async (id) => {
    const own = sessions.get(id)
    const { last = "", error } = own
    own.last = own.error = undefined
    if (own.parent) return tell("SubagentStop", id, { last_assistant_message: last })
    if (error?.name === "MessageAbortedError") return
    if (error) return tell("StopFailure", id, { error: error.data?.message ?? error.name })
    const reply = await tell("Stop", id, { last_assistant_message: last, stop_hook_active: own.continued === true })
    own.continued = reply.decision === "block"
    if (own.continued) {
      goesOn = reply.reason
      const parts = [{ type: "text", text: goesOn }]
      quietly(client.session.promptAsync({ path: { id }, body: { parts, agent: own.agent, model: own.model } }))
    }
  }

  const asked = async ({ id, sessionID, permission, metadata, tool }) => {
    await session(sessionID)
    const call = calls.get(tool?.callID) ?? called(permission, "", metadata ?? {})
    const { decision } = await tell("PermissionRequest", sessionID, call)
    const response = { allow: "once", deny: "reject" }[decision?.behavior]
    if (response) {
      await client.postSessionIdPermissionsPermissionId({
        path: { id: sessionID, permissionID: id },
        body: { response },
      })
    }
  }

  const handlers = {
    "session.created": ({ info }) => sessions.set(info.id, { parent: info.parentID, old: false }),
    "session.deleted": ({ info }) => sessions.delete(info.id),
    "session.error": ({ sessionID, error }) => {
      if (sessions.get(sessionID)?.busy) sessions.get(sessionID).error = error
    },
    "session.idle": ({ sessionID }) => {
      if (sessions.get(sessionID)?.busy) {
        sessions.get(sessionID).busy = false
        later(() => ended(sessionID))
      }
    },
    "message.updated": ({ info }) => {
      if (info.summary === true) summaries.add(info.id)
      if (info.role === "assistant" && info.time?.completed && info.tokens) {
        const { input, output = 0, reasoning = 0, cache } = info.tokens
        const tokens = { input, output: output + reasoning, cache_read: cache?.read, cache_write: cache?.write }
        bridge.used(info.id, info.modelID, tokens, info.cost) // more than once: the largest counts
      }
    },
    "message.part.updated": ({ part }) => {
      if (part.type === "compaction") compactions.set(part.sessionID, part.auto ? "auto" : "manual")
      if (part.type === "tool" && part.state.status === "error" && calls.has(part.callID)) {
        const call = calls.get(part.callID)
        calls.delete(part.callID)
        later(() => tell("PostToolUseFailure", part.sessionID, { ...call, error: part.state.error }))
      }
    },
    "permission.asked": (permission) => later(() => asked(permission)),
  }

  if (first) {
    later(async () => {
      waiting = context(await tell("SessionStart", "", { source: "startup" }))
    })
  }

  return {
    event: async ({ event }) => handlers[event.type]?.(event.properties),

    "chat.message": async ({ sessionID }, { message, parts }) => {
      const own = await session(sessionID)
      Object.assign(own, { agent: message.agent, model: message.model })
      const text = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      await told // the end of the previous turn
      if (own.parent) {
        await tell("SubagentStart", sessionID)
      } else if (goesOn !== undefined && text.join("\n") === goesOn) {
        goesOn = undefined
      } else {
        const added = await prompted(sessionID, text.join("\n"))
        // Parts are ordered by their ids.
        if (added) parts.push({ ...parts.at(-1), id: parts.at(-1).id + "r", type: "text", text: added, synthetic: true })
      }
      own.busy = true // unless it was blocked
    },

    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      await session(sessionID)
      const call = called(tool, callID, args)
      calls.set(callID, call)
      const reply = await tell("PreToolUse", sessionID, call)
      if (reply.permissionDecision === "deny") {
        calls.delete(callID)
        throw new Error(reply.permissionDecisionReason)
      }
      if (reply.updatedInput) {
        for (const key of Object.keys(args)) delete args[key]
        Object.assign(args, renamed(reply.updatedInput, OWN_FIELDS))
      }
    },

    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      calls.delete(callID)
      const call = called(tool, callID, args)
      const added = context(await tell("PostToolUse", sessionID, { ...call, tool_response: output.output ?? output.content }))
      if (!added) return
      if (Array.isArray(output.content)) output.content.push({ type: "text", text: added }) // an MCP server's
      else output.output = `${output.output}\n\n${added}`
    },

    "experimental.text.complete": async ({ sessionID, messageID, partID }, { text }) => {
      if (summaries.has(messageID)) return
      const own = await session(sessionID)
      own.last = text
      const { agent_id = "", agent_type = "" } = who(sessionID)
      bridge.said(partID, text, { subagent: agent_id, agent_type })
    },

    "experimental.session.compacting": async ({ sessionID }) => {
      await tell("PreCompact", sessionID, { trigger: compactions.get(sessionID) ?? "auto" })
    },

    // An opencode that the agent starts in its shell is not ours.
    "shell.env": async (_, { env }) => {
      Object.assign(env, options.shell)
    },

    dispose: async () => {
      await Promise.race([told, new Promise((resolve) => setTimeout(resolve, 5000).unref())])
      if (current) await tell("SessionEnd", current, { reason: "exit" })
    },
  }
}

function who(id) {
  const own = sessions.get(id)
  return own?.parent ? { agent_id: id, agent_type: own.agent ?? "" } : {}
}

function called(tool, id, input) {
  return { tool_name: TOOLS[tool] ?? tool, tool_input: renamed(input, FIELDS), tool_use_id: id }
}

function renamed(input, names) {
  return Object.fromEntries(Object.entries(input).map(([name, value]) => [names[name] ?? name, value]))
}

function context(reply) {
  return reply.additionalContext ?? ""
}

function quietly(promise) {
  return promise.catch(() => undefined)
}
