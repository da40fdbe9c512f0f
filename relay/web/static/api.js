/** The server's API (docs/WEB.md): requests, and what went wrong with them. */

export class ApiError extends Error {
  /** status: HTTP's, or 0 if the server cannot be reached. body: the answer's object. */
  constructor(status, body) {
    super(body?.error || (status ? `The server answered ${status}.` : "The server cannot be reached."));
    this.status = status;
    this.body = body ?? {};
  }
}

/** Events: "signedout" when the session is over, "gone" and "back" when the server is. */
export const server = new EventTarget();
let gone = false;

async function request(method, path, { query = {}, body } = {}) {
  const parameters = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  const headers = { Accept: "application/json" };
  if (method !== "GET") Object.assign(headers, { "Content-Type": "application/json", "X-Relay": "1" });
  let answer;
  try {
    answer = await fetch(parameters.size ? `${path}?${parameters}` : path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } catch {
    reached(false);
    throw new ApiError(0);
  }
  reached(true);
  if (answer.status === 401 && path !== "/api/session") server.dispatchEvent(new Event("signedout"));
  if (!answer.ok) throw new ApiError(answer.status, await answer.json().catch(() => null));
  return answer;
}

/** Note whether the server can be reached. */
export function reached(yes) {
  if (gone !== yes) return;
  gone = !yes;
  server.dispatchEvent(new Event(yes ? "back" : "gone"));
}

export async function get(path, query) {
  return (await request("GET", path, { query })).json();
}

/** Get a file as text. */
export async function getText(path) {
  return (await request("GET", path)).text();
}

export async function post(path, body = {}, query = {}) {
  const answer = await request("POST", path, { query, body });
  return answer.status === 204 ? null : answer.json();
}

export async function remove(path) {
  await request("DELETE", path);
}

/** The path of an agent in the API, without its team. */
export function agentPath(agent, ...more) {
  return ["/api/agents", encodeURIComponent(agent.name), ...more].join("/");
}

/** The address of a WebSocket of this server. */
export function socketAddress(path, query) {
  const address = new URL(path, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.search = new URLSearchParams(query);
  return address.href;
}
