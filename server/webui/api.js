/* Requests to the server of this page, and its errors in words. */

const KEY = "api-key";

export class ApiError extends Error {
  constructor(status, message, details = {}) {
    super(message);
    this.status = status; // 0: no answer
    this.details = details;
  }
}

/* The key lasts as long as the tab. */
let key = "";
try {
  key = sessionStorage.getItem(KEY) ?? "";
} catch {
  /* kept in memory alone */
}

export function setKey(value) {
  key = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    /* kept in memory alone */
  }
}

export const hasKey = () => key !== "";

function inWords(status, error) {
  if (error.type === "exceed_context_size_error" && error.n_ctx) return `The conversation is too long: it has ${error.n_prompt_tokens} tokens, and the context holds ${error.n_ctx}. Begin a new conversation, or edit an earlier message.`;
  if (status === 401) return hasKey() ? "The server does not accept this API key." : "The server asks for an API key.";
  if (status === 429) return "The server has too many requests. Try again in a moment.";
  if (status === 503) return `The server is not ready: ${error.message ?? "try again in a moment"}.`;
  return error.message ? `The server refused the request: ${error.message}.` : `The server answered with status ${status}.`;
}

function toError(status, body) {
  const error = typeof body?.error === "object" && body.error ? body.error : {};
  return new ApiError(status, inWords(status, error), error);
}

async function request(path, options = {}) {
  const headers = key ? { ...options.headers, Authorization: `Bearer ${key}` } : options.headers;
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (key && /[^\x20-\x7e]/.test(key)) throw new ApiError(401, "The API key has characters that no key has.");
    throw new ApiError(0, "The server does not answer. Is it still running?");
  }
  if (reply.ok) return reply;
  throw toError(reply.status, await reply.json().catch(() => null));
}

export async function listModels() {
  return (await (await request("/v1/models")).json()).data.map((model) => model.id);
}

/* Context and default settings of a model. */
export async function modelProperties(model) {
  const { n_ctx: context, params } = (await (await request(`/props?model=${encodeURIComponent(model)}`)).json()).default_generation_settings;
  return { context, params };
}

/* The data of the events of a stream. */
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

/*
 * Asks for an answer. `receive` gets each {content, reasoning, timings, finish, model}. An answer that ends without its last event is an
 * error: the connection broke off.
 */
export async function streamChat(body, signal, receive) {
  const reply = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, timings_per_token: true }),
    signal,
  });
  try {
    for await (const data of readEvents(reply.body)) {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw toError(event.error.code ?? 500, event);
      const choice = event.choices?.[0];
      receive({ content: choice?.delta?.content ?? "", reasoning: choice?.delta?.reasoning_content ?? "", timings: event.timings, finish: choice?.finish_reason, model: event.model });
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    throw new ApiError(0, "The connection to the server broke off.");
  }
  throw new ApiError(0, "The connection to the server broke off.");
}
