/* Puts the page together: models, the list of conversations, settings, colours, views, dictation. */
import { $, button, el, plural, say, setIcon } from "./dom.js";
import { apiOnKeyNeeded, call } from "./api.js";
import { Chat, sends } from "./chat.js";
import { Card, Transcribe } from "./transcribe.js";
import { Dictation, join, voicePossible } from "./voice.js";
import * as store from "./store.js";

const FIELDS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const LOADING_MS = 1000; /* between looks at a server that loads or is away */
const narrow = window.matchMedia("(max-width: 859px)");

let settings = store.load("settings", {}) || {};
let models = []; /* of /v1/models, as { id, kind, context } */
let list = []; /* conversations, the newest first */
let dictation = null;
let modelsTimer = 0;
let shownList = ""; /* what the list of conversations shows, so that it is built only when it changes */

const question = $("question");

const chat = new Chat({
  settings: () => settings,
  model: () => $("model").value,
  converses: () => kindOfChosen() !== "text",
  onBusy: showBusy,
  onChange: showConversations,
  onModelGone: () => loadModels(),
});
const transcribe = new Transcribe({ model: () => $("speech-model").value });

/* ---- notices ---- */

function notice(text, kind) {
  $("notice-text").textContent = text;
  $("notice").dataset.kind = kind || "";
  $("notice").hidden = !text;
}
$("notice-close").addEventListener("click", () => notice(""));

store.storeOnFull((full) => notice(full
  ? "This browser's storage is full: delete conversations to keep new ones."
  : "This browser keeps nothing: conversations end with this page."));

/* ---- models ---- */

/* What a model is for; unknown while it loads. "text" is a model that goes on with a text and knows
 * no conversation. */
function kindOf(m) {
  const can = m.capabilities || [];
  if (can.includes("transcription")) return "speech";
  if (can.includes("embedding")) return "embedding";
  if (m.status === "loading" || m.status === "failed") return m.status;
  return can.includes("chat") || !can.includes("completion") ? "chat" : "text";
}

const answers = (m) => m.kind === "chat" || m.kind === "text";

function kindOfChosen() {
  const m = models.find((x) => x.id === $("model").value);
  return m ? m.kind : "";
}

function loadingText() {
  const names = (kind) => models.filter((m) => m.kind === kind).map((m) => m.id).join(", ");
  if (names("loading")) return names("loading") + " is loading.";
  return names("failed") ? names("failed") + " could not be opened; the server's log says why." : "";
}

async function loadModels() {
  let again = false;
  clearTimeout(modelsTimer);
  try {
    const response = await call("v1/models", {
      onWait: (text) => notice(text, "wait"),
    });
    const answer = await response.json();
    models = (answer.data || []).filter((m) => m && typeof m.id === "string").map((m) => ({
      id: m.id,
      kind: kindOf(m),
      context: m.max_model_len || 0,
    }));
    notice(loadingText(), "wait");
    again = models.some((m) => m.kind === "loading");
  } catch (e) {
    const more = e.status === 0 ? " Trying again." : e.status === 401 ? " Reload to give one." : "";
    notice(e.message + more);
    again = e.status === 0;
  }
  showModels();
  clearTimeout(modelsTimer);
  if (again) modelsTimer = setTimeout(loadModels, LOADING_MS);
}

function fill(select, of) {
  const chosen = select.value || store.load(select.id, "");
  select.replaceChildren(...of.map((m) => el("option", { value: m.id }, m.id)));
  if (of.some((m) => m.id === chosen)) select.value = chosen;
}

function showModels() {
  const speech = models.filter((m) => m.kind === "speech");
  const talk = models.filter(answers);
  fill($("model"), talk);
  fill($("speech-model"), speech);
  $("model").disabled = talk.length < 2;
  $("model").parentElement.hidden = talk.length === 0;
  $("speech-model-label").hidden = speech.length < 2;
  $("views").hidden = talk.length === 0 || speech.length === 0;
  $("dictate").hidden = $("speak").hidden = speech.length === 0 || !voicePossible();
  const mayTalk = talk.length || models.some((m) => m.kind === "loading");
  document.body.classList.toggle("mute", speech.length > 0 && !mayTalk);
  if (speech.length && !mayTalk) showView("transcribe");
  if (!speech.length) showView("chat");
  showModelText();
  showSend();
}

function showModelText() {
  const m = models.find((x) => x.id === $("model").value);
  const goesOn = m && m.kind === "text";
  $("empty-title").textContent = goesOn ? "Begin a text" : "Ask something";
  question.placeholder = goesOn ? "How the text begins" : "Ask something";
  $("empty-text").textContent = goesOn ? m.id + " goes on with what you write." : !m ? (models.length ? "" : "Looking for models …")
    : m.context > 0 ? m.id + " reads up to " + plural(m.context, "token", "tokens") + "."
      : m.id + " answers on this server.";
}

$("model").addEventListener("change", () => {
  store.save("model", $("model").value);
  showModelText();
});
$("speech-model").addEventListener("change", () => store.save("speech-model", $("speech-model").value));

/* ---- views ---- */

function showView(name) {
  for (const v of ["chat", "transcribe"]) {
    $(v).hidden = v !== name;
    if (v === name) $("view-" + v).setAttribute("aria-current", "page");
    else $("view-" + v).removeAttribute("aria-current");
  }
  document.body.dataset.view = name;
}
$("view-chat").addEventListener("click", () => showView("chat"));
$("view-transcribe").addEventListener("click", () => showView("transcribe"));

/* ---- the list of conversations ---- */

function showDrawer(open) {
  document.body.classList.toggle("drawer", open);
  $("drawer").inert = !open;
  $("drawer-toggle").setAttribute("aria-expanded", String(open));
  if (!narrow.matches) store.save("drawer", open);
}
const drawerOpen = () => document.body.classList.contains("drawer");

function closeDrawer() {
  if (!drawerOpen()) return;
  showDrawer(false);
  $("drawer-toggle").focus();
}

$("drawer-toggle").addEventListener("click", () => {
  showDrawer(!drawerOpen());
  if (drawerOpen() && narrow.matches) $("new").focus();
});
$("drawer-close").addEventListener("click", closeDrawer);
$("scrim").addEventListener("click", closeDrawer);
narrow.addEventListener("change", () => showDrawer(!narrow.matches && store.load("drawer", true)));

function showConversations(changed) {
  if (changed && list[0] !== changed) list = [changed, ...list.filter((c) => c.id !== changed.id)];
  const shows = JSON.stringify([chat.conversation.id, ...list.map((c) => [c.id, c.title])]);
  if (shows === shownList) return;
  shownList = shows;
  const rows = list.map((c) => {
    const open = el("button", { type: "button", class: "conversation", onclick: () => choose(c) },
      c.title || "New conversation");
    if (c === chat.conversation) open.setAttribute("aria-current", "true");
    const drop = button("delete", "Delete: " + (c.title || "conversation"), () => remove(c));
    return el("li", null, open, drop);
  });
  $("conversations").replaceChildren(...rows);
}

function choose(c) {
  stopDictation();
  if (c !== chat.conversation) chat.show(c);
  showView(models.some(answers) || !models.length ? "chat" : "transcribe");
  showConversations();
  if (narrow.matches) showDrawer(false);
  $("question").focus();
}

function remove(c) {
  const at = list.indexOf(c);
  c.deleted = true;
  list = list.filter((x) => x !== c);
  store.dropConversation(c.id);
  if (c === chat.conversation) chat.show(store.newConversation());
  showConversations();
  const rows = $("conversations").children;
  const next = rows[Math.min(at, rows.length - 1)];
  (next ? next.lastChild : $("new")).focus();
  say("Deleted");
}

$("new").addEventListener("click", () => choose(store.newConversation()));

/* Another tab keeps its conversations in the same place. */
window.addEventListener("storage", () => {
  if (chat.busy()) return;
  const current = chat.conversation;
  list = store.conversations();
  const same = list.findIndex((c) => c.id === current.id);
  if (same >= 0 && list[same].at > current.at) chat.show(list[same]);
  else if (same >= 0) list[same] = current;
  showConversations();
});

/* ---- asking ---- */

function showSend() {
  const busy = chat.busy();
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("send").disabled = !$("model").value || (!question.value.trim() && !dictation);
}

function showBusy(busy) {
  const had = document.activeElement === $("stop") || document.activeElement === document.body;
  showSend();
  if (!busy && had) question.focus();
}

/* The mirror holds the same text, so the field is as high as its text, and shows a partial text
 * dimmed, which a field cannot. */
function showQuestion(partial) {
  const mirror = $("mirror");
  mirror.replaceChildren(question.value);
  if (partial) mirror.append(el("span", { class: "partial" }, partial));
  mirror.append("\u200b");
  showSend();
}

function sendQuestion() {
  const text = question.value.trim();
  if (!text || chat.busy() || !$("model").value) return;
  question.value = "";
  showQuestion();
  chat.ask(text);
}

question.addEventListener("input", () => showQuestion());
question.addEventListener("keydown", (e) => {
  if (sends(e)) {
    e.preventDefault();
    submit();
  } else if (e.key === "ArrowUp" && !question.value && !chat.busy()) {
    e.preventDefault();
    chat.edit();
  }
});

function submit() {
  if (dictation) stopDictation(true);
  else sendQuestion();
}

$("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  submit();
});
$("stop").addEventListener("click", () => chat.stop());
document.addEventListener("keydown", (e) => {
  if (e.key !== "Escape" || e.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (dictation) stopDictation();
  else if (chat.busy()) chat.stop();
  else if (narrow.matches) closeDrawer();
});

/* ---- dictation ---- */

function showDictating(b, is) {
  b.setAttribute("aria-pressed", String(is));
  b.classList.toggle("on", is);
  document.body.classList.toggle("dictating", is);
  for (const i of [1, 2, 3, 4, 5]) b.classList.remove("level-" + i);
}

/* Loudness as one of five steps, so that no style has to be written from here. */
function showLevel(b, level) {
  const step = Math.max(0, Math.min(5, Math.round(5 + Math.log10(level + 1e-6) * 2.5)));
  for (const i of [1, 2, 3, 4, 5]) b.classList.toggle("level-" + i, i === step);
}

function startDictation(b, onText, onEnd) {
  showDictating(b, true);
  say("Listening");
  const d = new Dictation($("speech-model").value, $("language").value.trim(), {
    text: onText,
    level: (level) => showLevel(b, level),
    error: (message) => notice(message),
    end: (final) => {
      if (dictation === d) dictation = null;
      showDictating(b, false);
      onEnd(final);
    },
  });
  dictation = d;
  d.start();
}

function stopDictation(send) {
  if (!dictation) return;
  dictation.sendAfter = send;
  dictation.stop();
}

function dictate() {
  if (dictation) {
    stopDictation();
    return;
  }
  const before = question.value.slice(0, question.selectionStart);
  const after = question.value.slice(question.selectionEnd);
  question.readOnly = true;
  hint("Listening. Esc ends it, Enter sends.");
  let d = null;
  startDictation($("dictate"),
    (final, partial) => {
      question.value = join(before, final);
      const apart = !final && partial && /\S$/.test(before) ? " " : "";
      showQuestion(apart + partial + (after ? " " + after : ""));
    },
    (final) => {
      const text = join(before, final);
      question.readOnly = false;
      question.value = join(text, after);
      question.setSelectionRange(text.length, text.length);
      hint("");
      showQuestion();
      question.focus();
      say(final || "Nothing was heard");
      if (d.sendAfter) sendQuestion();
    });
  d = dictation;
  showSend();
}
$("dictate").addEventListener("click", dictate);

function hint(text) {
  $("hint-voice").textContent = text;
  $("hint-voice").hidden = !text;
  $("hint").firstElementChild.hidden = !!text;
}

/* Speech without a conversation: its text becomes a card like a file's. */
function speak() {
  if (dictation) {
    stopDictation();
    return;
  }
  const label = $("speak").querySelector("span");
  const started = Date.now();
  const name = "Spoken at " + new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const card = new Card(name, { onRemove: () => {
    stopDictation();
    card.root.remove();
  } });
  const text = el("p", { class: "spoken" });
  card.bar.hidden = true;
  card.say("Listening");
  card.body.append(text);
  $("transcripts").prepend(card.root);
  label.textContent = "Stop";
  startDictation($("speak"),
    (final, partial) => text.replaceChildren(final,
      el("span", { class: "partial" }, partial)),
    (final) => {
      label.textContent = "Speak";
      card.finish({ text: final, segments: [], seconds: (Date.now() - started) / 1000 });
    });
}
$("speak").addEventListener("click", speak);

/* ---- files that are dropped anywhere on the page ---- */

const hasSpeech = () => models.some((m) => m.kind === "speech");
const holdsFiles = (e) => e.dataTransfer && Array.from(e.dataTransfer.types).includes("Files");
let dragDepth = 0;

function showDrag(depth) {
  dragDepth = Math.max(0, depth);
  document.body.classList.toggle("dragging", dragDepth > 0 && hasSpeech());
}
document.addEventListener("dragenter", (e) => holdsFiles(e) && showDrag(dragDepth + 1));
document.addEventListener("dragleave", (e) => holdsFiles(e) && showDrag(dragDepth - 1));
document.addEventListener("dragover", (e) => {
  if (holdsFiles(e)) e.preventDefault();
});
document.addEventListener("drop", (e) => {
  if (!holdsFiles(e)) return;
  e.preventDefault(); /* otherwise the browser leaves the page for the file */
  showDrag(0);
  if (!hasSpeech()) {
    notice("No speech model is served here, so recordings cannot be transcribed.");
    return;
  }
  showView("transcribe");
  transcribe.add(e.dataTransfer.files);
});

/* ---- settings ---- */

function readSettings() {
  settings = { system: $("s-system").value.trim() };
  for (const name of FIELDS) {
    const field = $("s-" + name);
    if (field.value !== "" && field.validity.valid) settings[name] = field.valueAsNumber;
  }
  settings.thinking = $("settings-form").elements.thinking.value;
  store.save("settings", settings);
  markSettings();
}

function writeSettings() {
  $("s-system").value = settings.system || "";
  for (const name of FIELDS)
    $("s-" + name).value = Number.isFinite(settings[name]) ? settings[name] : "";
  $("settings-form").elements.thinking.value = settings.thinking || "";
  markSettings();
}

/* A dot on the button tells that something is set. */
function markSettings() {
  const set = settings.system || settings.thinking || FIELDS.some((n) => Number.isFinite(settings[n]));
  $("settings-open").classList.toggle("marked", !!set);
}

$("settings-open").addEventListener("click", () => $("settings").showModal());
$("settings-close").addEventListener("click", () => $("settings").close());
$("settings-form").addEventListener("input", readSettings);
$("settings-reset").addEventListener("click", () => {
  settings = {};
  store.save("settings", settings);
  writeSettings();
});

/* ---- colours ---- */

const THEMES = ["auto", "light", "dark"];

function showTheme() {
  const theme = document.documentElement.dataset.choice;
  setIcon($("theme"), { auto: "auto", light: "sun", dark: "moon" }[theme]);
  const words = { auto: "as the system", light: "light", dark: "dark" };
  $("theme").setAttribute("aria-label", "Colours: " + words[theme]);
  $("theme").title = "Colours: " + words[theme];
}

$("theme").addEventListener("click", () => {
  const choice = document.documentElement.dataset.choice;
  const next = THEMES[(THEMES.indexOf(choice) + 1) % THEMES.length];
  window.applyTheme(next); /* theme.js */
  try {
    localStorage.setItem("reel/theme", next);
  } catch (e) {
    /* Then the choice ends with the page. */
  }
  showTheme();
});

/* ---- the key ---- */

apiOnKeyNeeded((had) => new Promise((resolve) => {
  const dialog = $("key");
  const field = $("key-value");
  let answer = null;
  $("key-text").textContent = had ? "The key that was given is not one of this server's."
    : "It answers those who have one of the keys that it was started with.";
  field.value = "";
  $("key-form").onsubmit = () => {
    answer = field.value.trim();
  };
  $("key-cancel").onclick = () => dialog.close();
  dialog.onclose = () => resolve(answer || null);
  dialog.showModal();
  field.focus();
}));

/* ---- the beginning ---- */

window.addEventListener("online", () => loadModels());
list = store.conversations();
showTheme();
writeSettings();
showDrawer(!narrow.matches && store.load("drawer", true));
chat.show(store.newConversation());
showConversations();
showQuestion();
showView("chat");
loadModels();
if (!narrow.matches) question.focus();
