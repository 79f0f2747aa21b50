/* The server's routes. Every request passes through call(): it adds the key, asks for one when the
 * server answers 401, waits and repeats when the server is loading or busy, and turns what goes
 * wrong into an ApiError whose message can be shown. */
const KEY = "reel/key"; /* of sessionStorage: gone when the tab closes */

let key = "";
try {
  key = sessionStorage.getItem(KEY) || "";
} catch (e) {
  key = "";
}

let keyPrompt = async () => null;
let asking = null; /* the prompt that is open, shared by all requests that met a 401 */

export function apiOnKeyNeeded(prompt) {
  keyPrompt = prompt;
}

/* The server's messages begin as parts of a line; here they stand by themselves. */
function sentence(text) {
  const t = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(t) ? t : t + ".";
}

export class ApiError extends Error {
  constructor(message, status, code) {
    super(sentence(message));
    this.status = status; /* 0: the server was not reached */
    this.code = code;
  }
}

/* An address beside the page's own. The page's may hold a name and a password, which requests may
 * not. */
export function url(path) {
  const u = new URL(path, document.baseURI);
  u.username = u.password = u.hash = "";
  return u;
}

export function authorization() {
  return key ? { Authorization: "Bearer " + key } : {};
}

/* Resolves to true when there is a new key to try. */
export async function askForKey() {
  if (!asking) {
    asking = keyPrompt(key !== "").finally(() => {
      asking = null;
    });
  }
  const answer = await asking;
  if (answer === null) return false;
  key = answer;
  try {
    sessionStorage.setItem(KEY, key);
  } catch (e) {
    /* It is known to this page at least. */
  }
  return true;
}

/* options: method, body (an object goes out as JSON), signal, and onWait(message, seconds), which
 * is called before each repetition; without it 503 is an error like others. */
export async function call(path, options = {}) {
  for (;;) {
    const usedKey = key;
    const response = await send(path, options);
    if (response.ok) return response;
    const error = await readError(response);
    if (response.status === 401) {
      if (usedKey !== key || (await askForKey())) continue;
      throw error;
    }
    const after = Number(response.headers.get("Retry-After"));
    const again = response.status === 503 || response.status === 429;
    if (!again || !options.onWait || !(after > 0)) throw error;
    options.onWait(error.message, after);
    await pause(Math.min(after, 30) * 1000, options.signal);
  }
}

async function send(path, { method = "GET", body, signal }) {
  const headers = authorization();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(url(path), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    if (/ISO-8859-1|ByteString/.test(String(e.message)))
      throw new ApiError("The key holds a character that no header can carry.", 401);
    throw new ApiError("The server cannot be reached.", 0);
  }
}

async function readError(response) {
  let text = "";
  try {
    text = await response.text();
  } catch (e) {
    text = "";
  }
  return errorOf(text, response.status);
}

/* The error in an answer's text: OpenAI's object where it is one, the text itself where it is
 * short. */
export function errorOf(text, status) {
  try {
    const e = JSON.parse(text).error;
    if (e && typeof e.message === "string") return new ApiError(e.message, status, e.code);
    if (typeof e === "string") return new ApiError(e, status);
  } catch (e) {
    /* It was no JSON. */
  }
  const short = text.trim();
  if (short && short.length < 200 && !short.startsWith("<")) return new ApiError(short, status);
  return new ApiError("The server answered with an error (" + status + ").", status);
}

export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    if (!signal) return;
    const leave = () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave, { once: true });
  });
}

/* Splits a stream of server-sent events that arrives in pieces; calls onData with each event's
 * data. Comments and other fields are passed over. */
export class EventLines {
  constructor(onData) {
    this.onData = onData;
    this.rest = "";
    this.data = "";
  }
  push(text) {
    const all = this.rest + text;
    let at = 0;
    for (let end; (end = all.indexOf("\n", at)) >= 0; at = end + 1) {
      const cr = end > at && all.charCodeAt(end - 1) === 13;
      this.line(all.slice(at, cr ? end - 1 : end));
    }
    this.rest = all.slice(at);
  }
  line(line) {
    if (line === "") {
      if (this.data) this.onData(this.data);
      this.data = "";
    } else if (line.startsWith("data:")) {
      const value = line.slice(line.charCodeAt(5) === 32 ? 6 : 5);
      this.data = this.data ? this.data + "\n" + value : value;
    }
  }
}

/* Reads an answer of events to its end. */
export async function readEvents(response, onData) {
  const lines = new EventLines(onData);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      lines.push(decoder.decode(value, { stream: true }));
    }
  } catch (e) {
    if (e.name === "AbortError") throw e;
    if (e instanceof ApiError) throw e;
    throw new ApiError("The connection was lost.", 0);
  } finally {
    reader.cancel().catch(() => {});
  }
}

/* Whether a WebSocket would be refused for want of a key that other requests do not want: a browser
 * that asked for a password itself sends it with those, and some do not with WebSockets. */
export async function socketWantsKey() {
  if (key) return false;
  try {
    const r = await fetch(url("v1/models"), { credentials: "omit", cache: "no-store" });
    return r.status === 401;
  } catch (e) {
    return false;
  }
}

/* A WebSocket of the same server. A browser cannot add headers to its handshake, so the key travels
 * as a subprotocol, as OpenAI's clients for browsers send it. */
export function openSocket(path) {
  const to = url(path);
  to.protocol = to.protocol === "https:" ? "wss:" : "ws:";
  const protocols = ["realtime"];
  if (key) protocols.push("openai-insecure-api-key." + key);
  try {
    return new WebSocket(to.href, protocols);
  } catch (e) {
    throw new ApiError("The key holds a character that a WebSocket cannot carry.", 401);
  }
}
