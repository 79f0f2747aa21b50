/* Recordings to text: files that are dropped or chosen, one after the other, and what is spoken.
 *
 * XMLHttpRequest sends the files, because fetch says nothing of an upload's progress. */
import { $, button, copyText, download, duration, el, say } from "./dom.js";
import { ApiError, askForKey, authorization, errorOf, EventLines, url } from "./api.js";

export class Transcribe {
  /* host: model() names the speech model. */
  constructor(host) {
    this.host = host;
    this.queue = [];
    this.running = false;
    $("choose").addEventListener("click", () => $("files").click());
    $("files").addEventListener("change", () => {
      this.add($("files").files);
      $("files").value = "";
    });
  }

  add(files) {
    for (const file of files) {
      const card = new Card(file.name, { onRemove: () => this.remove(card), onAgain: () => this.put(card) });
      card.file = file;
      $("transcripts").prepend(card.root);
      this.put(card);
    }
  }

  put(card) {
    card.wait();
    this.queue.push(card);
    this.run();
  }

  remove(card) {
    card.removed = true;
    if (card.request) card.request.abort();
    card.release();
    this.queue = this.queue.filter((c) => c !== card);
    card.root.remove();
    $("choose").focus();
  }

  /* One at a time: a server's engine is one, and the texts come sooner in order. */
  async run() {
    if (this.running) return;
    this.running = true;
    while (this.queue.length) {
      const card = this.queue.shift();
      try {
        await this.transcribe(card);
      } catch (e) {
        if (!card.removed) card.fail(e.message);
      }
    }
    this.running = false;
  }

  async transcribe(card) {
    for (;;) {
      const form = new FormData();
      form.append("model", this.host.model());
      form.append("response_format", "verbose_json");
      form.append("stream", "true");
      form.append("timestamp_granularities[]", "segment");
      const language = $("language").value.trim();
      if (language) form.append("language", language);
      form.append("file", card.file, card.file.name);
      const { status, text, result, after } = await send(card, form);
      if (result) {
        card.finish(result);
        return;
      }
      const error = errorOf(text, status);
      if (status === 401 && (await askForKey())) continue;
      if (!((status === 503 || status === 429) && after > 0)) throw error;
      card.say(error.message + " Trying again.");
      await new Promise((r) => setTimeout(r, Math.min(after, 30) * 1000));
      if (card.removed) throw new ApiError("removed", 0);
    }
  }
}

function send(card, form) {
  return new Promise((resolve, reject) => {
    const x = new XMLHttpRequest();
    card.request = x;
    x.open("POST", url("v1/audio/transcriptions"));
    for (const [name, value] of Object.entries(authorization())) x.setRequestHeader(name, value);
    x.upload.onprogress = (e) => {
      sent = e.loaded;
      if (e.lengthComputable) card.progress(e.loaded / e.total);
    };
    x.upload.onload = () => card.progress(1);
    let result = null;
    let failed = null;
    let read = 0;
    let spoken = "";
    const lines = new EventLines((data) => {
      const e = readEvent(data);
      if (e.error) failed = errorOf(data, 500);
      else if (e.type === "transcript.text.done") result = readResult(e);
      else if (e.delta) card.spoken((spoken += e.delta));
    });
    x.onprogress = () => {
      if (x.status !== 200) return;
      lines.push(x.responseText.slice(read));
      read = x.responseText.length;
    };
    x.onload = () => {
      x.onprogress();
      if (failed) reject(failed);
      else if (x.status === 200 && !result)
        reject(new ApiError("The connection ended before the text did.", 0));
      else resolve({ status: x.status, text: x.responseText, result,
        after: Number(x.getResponseHeader("Retry-After")) });
    };
    let sent = 0;
    x.onerror = () => reject(new ApiError(sent > 0
      ? "The connection was lost while the file was sent; it may be larger than the server takes."
      : "The server cannot be reached.", 0));
    x.onabort = () => reject(new ApiError("Removed.", 0));
    card.start = performance.now();
    x.send(form);
  });
}

function readEvent(data) {
  try {
    return JSON.parse(data) || {};
  } catch (e) {
    return {};
  }
}

function readResult(r) {
  const segments = (Array.isArray(r.segments) ? r.segments : [])
    .filter((s) => s && Number.isFinite(s.start) && Number.isFinite(s.end) && typeof s.text === "string")
    .map((s) => ({ start: s.start, end: s.end, text: s.text.trim() }));
  return { text: String(r.text || "").trim(), segments, language: r.language, seconds: r.duration };
}

/* One recording on the page. */
export class Card {
  constructor(name, { onRemove, onAgain }) {
    this.name = name;
    this.status = el("span", { class: "card-status" });
    this.bar = el("progress", { max: "1", "aria-label": "Progress of " + name });
    this.body = el("div", { class: "card-body" });
    this.again = onAgain && button("again", "Transcribe again", onAgain);
    this.root = el("section", { class: "card", "aria-label": name },
      el("div", { class: "card-top" },
        el("span", { class: "card-name" }, name), this.status,
        ...(this.again ? [this.again] : []),
        button("close", "Remove " + name, onRemove)),
      this.bar, this.body);
  }

  say(text) {
    this.status.textContent = text;
  }

  wait() {
    this.body.replaceChildren();
    this.bar.hidden = false;
    if (this.again) this.again.hidden = true;
    this.say("Waiting");
  }

  /* The upload's share; once it is all there, the server works and time is counted. */
  progress(share) {
    if (share < 1) {
      this.bar.value = share;
      this.say("Sending, " + Math.round(share * 100) + " %");
      return;
    }
    if (this.timer) return;
    this.bar.removeAttribute("value");
    const tick = () => this.say("Transcribing, " + duration(performance.now() - this.start));
    tick();
    this.timer = setInterval(tick, 100);
  }

  /* The text so far. */
  spoken(text) {
    this.progress(1);
    if (!this.live) this.body.replaceChildren((this.live = el("p", { class: "spoken partial" })));
    this.live.textContent = text;
  }

  settle() {
    this.live = null;
    clearInterval(this.timer);
    this.timer = 0;
    this.bar.hidden = true;
    if (this.again) this.again.hidden = false;
  }

  fail(message) {
    this.settle();
    this.say("");
    this.body.replaceChildren(el("p", { class: "note error" }, message));
    say(this.name + ": " + message);
  }

  finish(result) {
    const took = this.start ? performance.now() - this.start : 0;
    this.settle();
    const parts = [];
    if (result.seconds > 0) parts.push(clock(result.seconds));
    if (result.language) parts.push(result.language);
    if (took > 0) parts.push("in " + duration(took));
    this.say(parts.join(" · "));
    const copy = button("copy", "Copy the text", () => copyText(result.text, copy), "Copy");
    const base = this.name.replace(/\.[^.]*$/, "") || "recording";
    const file = (end, type, make) => button("down", "Download " + base + end,
      () => download(base + end, type, make()), end.slice(1));
    const acts = el("div", { class: "row card-acts" }, copy,
      file(".txt", "text/plain", () => result.text + "\n"));
    if (result.segments.length)
      acts.append(file(".srt", "application/x-subrip", () => srt(result.segments)),
        file(".vtt", "text/vtt", () => vtt(result.segments)));
    this.body.replaceChildren(this.text(result), acts);
    say(this.name + ": " + (result.text.slice(0, 500) || "no speech"));
  }

  text(result) {
    if (!result.text) return el("p", { class: "note" }, "No speech was heard.");
    if (result.segments.length < 2 || !this.file) return el("p", { class: "spoken" }, result.text);
    this.release();
    this.source = URL.createObjectURL(this.file);
    const audio = el("audio", { controls: true, preload: "metadata", src: this.source });
    audio.addEventListener("error", () => audio.remove());
    const lines = el("ol", { class: "segments" }, ...result.segments.map((s) =>
      el("li", null,
        el("button", { type: "button", class: "time", "aria-label": "Play from " + clock(s.start),
          onclick: () => {
            audio.currentTime = s.start;
            audio.play().catch(() => {});
          } }, clock(s.start)),
        el("span", null, s.text))));
    return el("div", null, audio, lines);
  }

  release() {
    clearInterval(this.timer);
    if (this.source) URL.revokeObjectURL(this.source);
  }
}

function clock(seconds) {
  const s = Math.floor(seconds);
  const rest = String(s % 60).padStart(2, "0");
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return minutes + ":" + rest;
  return Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + ":" + rest;
}

function stamp(seconds, mark) {
  const ms = Math.max(0, Math.round(seconds * 1000));
  const two = (n) => String(n).padStart(2, "0");
  return two(Math.floor(ms / 3600000)) + ":" + two(Math.floor(ms / 60000) % 60) + ":" +
    two(Math.floor(ms / 1000) % 60) + mark + String(ms % 1000).padStart(3, "0");
}

/* A line that holds "-->" or nothing would end a subtitle early. */
const plainLine = (text) => text.replace(/\s+/g, " ").replace(/-->/g, "→");

export function srt(segments) {
  return segments.map((s, i) => i + 1 + "\n" + stamp(s.start, ",") + " --> " + stamp(s.end, ",") +
    "\n" + plainLine(s.text) + "\n").join("\n");
}

export function vtt(segments) {
  const text = (t) => plainLine(t).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  return "WEBVTT\n\n" + segments.map((s) =>
    stamp(s.start, ".") + " --> " + stamp(s.end, ".") + "\n" + text(s.text) + "\n").join("\n");
}
