/* What this browser keeps: conversations, settings, the model last used. All of it is in
 * localStorage under "reel/"; a browser without it, or a full one, keeps things in memory until the
 * page is left, and `onFull` says so once. */
const CONVERSATION = "reel/c/";

let works = true;
let told = false;
let onFull = () => {};

export function storeOnFull(callback) {
  onFull = callback;
}

export function load(name, otherwise) {
  try {
    const text = localStorage.getItem("reel/" + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch (e) {
    return otherwise;
  }
}

export function save(name, value) {
  return put("reel/" + name, JSON.stringify(value));
}

function put(key, text) {
  try {
    localStorage.setItem(key, text);
    works = true;
    told = false;
    return true;
  } catch (e) {
    works = false;
    if (!told) {
      told = true;
      onFull(e && e.name === "QuotaExceededError");
    }
    return false;
  }
}

export const storeWorks = () => works;

/* All conversations, the newest first. An item that is no conversation is passed over. */
export function conversations() {
  const found = [];
  try {
    for (let i = 0; i < localStorage.length; i++) {
      const key = localStorage.key(i);
      if (!key.startsWith(CONVERSATION)) continue;
      const c = readConversation(localStorage.getItem(key));
      if (c) found.push(c);
    }
  } catch (e) {
    return found;
  }
  return found.sort((a, b) => b.at - a.at);
}

function readConversation(text) {
  try {
    const c = JSON.parse(text);
    const whole =
      c && typeof c.id === "string" && typeof c.title === "string" && Number.isFinite(c.at);
    if (!whole || !Array.isArray(c.messages)) return null;
    c.messages = c.messages.filter(
      (m) => m && typeof m.role === "string" && typeof m.content === "string",
    );
    return c;
  } catch (e) {
    return null;
  }
}

export function newConversation() {
  const random = crypto.getRandomValues(new Uint32Array(2));
  const id = Date.now().toString(36) + random[0].toString(36) + random[1].toString(36);
  return { id, title: "", at: Date.now(), messages: [] };
}

export function keepConversation(c) {
  return put(CONVERSATION + c.id, JSON.stringify(c));
}

export function dropConversation(id) {
  try {
    localStorage.removeItem(CONVERSATION + id);
  } catch (e) {
    /* What was never kept need not be dropped. */
  }
  told = false; /* there may be room again */
}
