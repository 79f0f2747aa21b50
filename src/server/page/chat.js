/* The conversation: questions, answers that stream, and what can be done with them.
 *
 * An answer may come at thousands of tokens a second. What arrives is only added to strings; the
 * page is drawn at most once a frame, and less often when drawing itself takes long. */
import { $, button, copyText, count, duration, el, icon, plural, say } from "./dom.js";
import { ApiError, call, readEvents } from "./api.js";
import { Markdown } from "./markdown.js";
import { keepConversation } from "./store.js";

const SAVE_EVERY_MS = 2000;
const TEXT_TOKENS = 256; /* where no limit is set and no end of an answer is known */
const MOST_SAID = 1500; /* characters of an answer that a screen reader is given at once */

/* ---- one answer on the page ---- */

class AnswerView {
  constructor(message, actions) {
    this.message = message;
    this.thinking = null;
    this.tools = null;
    this.markdown = null;
    this.pace = el("span", { class: "pace" });
    this.acts = el("span", { class: "acts" }, ...actions);
    this.foot = el("div", { class: "answer-foot" }, this.pace, this.acts);
    this.root = el("article", { class: "answer", "aria-label": "Answer" }, this.foot);
  }

  /* Brings the page up to the message. `live`: more is to come. */
  draw(live) {
    const m = this.message;
    if (m.thought) this.drawThought(live);
    if (m.content) {
      if (!this.markdown) {
        const body = el("div", { class: "md" });
        this.foot.before(body);
        this.markdown = new Markdown(body);
      }
      this.markdown.update(m.content, !live);
    }
    if (m.tools && m.tools.length) this.drawTools();
    this.root.classList.toggle("live", live);
    this.root.classList.toggle("waiting", live && !m.content && !m.thought);
    this.drawPace(live);
    if (!live) this.drawEnd();
  }

  /* The thought's text is put on the page only while it is unfolded. */
  drawThought(live) {
    const m = this.message;
    if (!this.thinking) {
      const label = el("span", { class: "thought-label" });
      const body = el("div", { class: "md" });
      const fold = el("details", { class: "thought" },
        el("summary", null, icon("chevron"), label), body);
      this.root.prepend(fold);
      this.thinking = { fold, label, body, markdown: new Markdown(body) };
      fold.addEventListener("toggle", () => this.drawThoughtText());
    }
    const busy = live && !m.content;
    const ms = busy ? performance.now() - m.thoughtStart : m.thoughtMs;
    this.thinking.busy = busy;
    this.thinking.fold.classList.toggle("busy", busy);
    const seconds = ms >= 950 ? plural(ms / 1000, "second", "seconds") : duration(ms || 0);
    this.thinking.label.textContent = busy
      ? "Thinking" + (ms >= 950 ? " for " + seconds : "")
      : "Thought for " + seconds;
    this.drawThoughtText();
  }

  drawThoughtText() {
    const t = this.thinking;
    if (t.fold.open) t.markdown.update(this.message.thought, !t.busy);
  }

  drawTools() {
    if (!this.tools) {
      this.tools = el("div", { class: "tools" });
      this.foot.before(this.tools);
    }
    this.tools.replaceChildren(...this.message.tools.map((t) =>
      el("div", { class: "code" },
        el("div", { class: "code-top" }, el("span", null, "call of " + (t.name || "a tool"))),
        el("pre", { tabindex: "0" }, el("code", null, t.arguments)))));
  }

  drawPace(live) {
    const m = this.message;
    const s = m.stats || {};
    const parts = [];
    if (s.perSecond > 0) parts.push(count(s.perSecond) + " tokens/s");
    if (s.firstMs !== undefined) parts.push("first token " + duration(s.firstMs));
    if (s.tokens > 0 && !live) parts.push(plural(s.tokens, "token", "tokens"));
    if (s.prompt > 0 && !live) parts.push("prompt " + count(s.prompt));
    if (s.waiting) parts.splice(0, parts.length, s.waiting);
    const text = parts.join(" · ");
    if (this.pace.textContent !== text) this.pace.textContent = text;
  }

  drawEnd() {
    const m = this.message;
    if (this.note) this.note.remove();
    this.note = null;
    const text = m.error || (m.stopped && "Stopped.") ||
      (m.finish === "length" && "The limit of tokens was reached.") ||
      (!m.content && !(m.tools && m.tools.length) && "The model answered nothing.");
    if (!text) return;
    this.note = el("p", { class: m.error ? "note error" : "note" }, text);
    this.foot.before(this.note);
  }
}

/* ---- the conversation ---- */

export class Chat {
  /* host: settings(), model() and converses() for requests, onChange(conversation) after something was kept,
   * onBusy(is), onModelGone() when the model is not known any more. */
  constructor(host) {
    this.host = host;
    this.conversation = null;
    this.views = []; /* one per message, in order */
    this.running = null;
    this.stick = true; /* the end is in sight, so it is kept in sight */
    this.scroll = $("scroll");
    this.scroll.addEventListener("scroll", () => this.onScroll(), { passive: true });
    $("to-end").addEventListener("click", () => this.toEnd());
    document.addEventListener("visibilitychange", () => this.keepRunning());
    window.addEventListener("pagehide", () => this.keepRunning());
  }

  show(conversation) {
    this.stop();
    this.conversation = conversation;
    this.views = [];
    $("messages").replaceChildren();
    for (const m of conversation.messages) this.addView(m);
    this.refresh();
    this.toEnd();
  }

  addView(message) {
    const view = message.role === "user" ? this.questionView(message) : this.answerView(message);
    this.views.push(view);
    $("messages").append(view.root);
    return view;
  }

  questionView(message) {
    const text = el("div", { class: "bubble" }, message.content);
    const edit = button("edit", "Edit this question", () => this.edit());
    const root = el("article", { class: "question", "aria-label": "Question" }, edit, text);
    return { root, text, edit, message };
  }

  answerView(message) {
    const copy = button("copy", "Copy the answer", () => copyText(message.content, copy));
    const again = button("again", "Answer anew", () => this.regenerate());
    const view = new AnswerView(message, [copy, again]);
    view.again = again;
    view.draw(this.running !== null && this.running.message === message);
    return view;
  }

  /* Only the last question can be edited and only the last answer be made anew. */
  refresh() {
    const messages = this.conversation.messages;
    const last = messages.length - 1;
    const lastQuestion = messages.map((m) => m.role).lastIndexOf("user");
    this.views.forEach((v, i) => {
      if (v.edit) v.edit.hidden = i !== lastQuestion || this.running !== null;
      if (v.again) v.again.hidden = i !== last || this.running !== null;
      if (v.acts) v.acts.hidden = this.running !== null && i === last;
    });
    $("empty").hidden = messages.length > 0;
    $("messages").hidden = messages.length === 0;
  }

  busy() {
    return this.running !== null;
  }

  ask(text) {
    const c = this.conversation;
    if (!c.title) c.title = text.trim().replace(/\s+/g, " ").slice(0, 80);
    const message = { role: "user", content: text };
    c.messages.push(message);
    this.addView(message);
    this.stick = true;
    return this.answer();
  }

  regenerate() {
    if (this.running) return null;
    const c = this.conversation;
    while (c.messages.length && c.messages[c.messages.length - 1].role !== "user") {
      c.messages.pop();
      this.views.pop().root.remove();
    }
    if (!c.messages.length) return null;
    this.stick = true;
    $("question").focus();
    return this.answer();
  }

  /* Turns the last question into a field; sending it drops the answer that followed. */
  edit() {
    const at = this.conversation.messages.map((m) => m.role).lastIndexOf("user");
    if (at < 0 || this.running) return;
    const view = this.views[at];
    const field = el("textarea", { "aria-label": "Edit the question", rows: "1" });
    field.value = view.message.content;
    const leave = () => {
      form.remove();
      view.root.classList.remove("editing");
      view.edit.focus();
    };
    const grow = () => {
      field.rows = Math.min(12, field.value.split("\n").length + Math.floor(field.value.length / 60));
    };
    const form = el("form", { class: "edit", onsubmit: (e) => {
      e.preventDefault();
      const text = field.value.trim();
      if (!text) return;
      leave();
      this.replaceQuestion(at, text);
    } }, field, el("div", { class: "row end" },
      el("button", { type: "button", class: "quiet", onclick: leave }, "Cancel"),
      el("button", { type: "submit", class: "strong" }, "Ask again")));
    field.addEventListener("input", grow);
    field.addEventListener("keydown", (e) => {
      if (e.key === "Escape") {
        e.stopPropagation();
        leave();
      } else if (sends(e)) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
    view.root.classList.add("editing");
    view.root.append(form);
    grow();
    field.focus();
  }

  replaceQuestion(at, text) {
    const c = this.conversation;
    c.messages.length = at;
    while (this.views.length > at) this.views.pop().root.remove();
    if (at === 0) c.title = "";
    this.ask(text);
    $("question").focus();
  }

  stop() {
    if (this.running) this.running.abort.abort();
  }

  /* ---- asking the server ---- */

  async answer() {
    const c = this.conversation;
    const message = { role: "assistant", content: "", model: this.host.model(), stats: {} };
    const sent = this.request(c);
    c.messages.push(message);
    c.at = Date.now();
    this.keep(c);
    const run = {
      abort: new AbortController(), conversation: c, message, frame: 0, events: 0,
      start: performance.now(), first: 0, drawn: 0, cost: 0, saved: performance.now(),
    };
    this.running = run;
    const view = this.addView(message);
    run.view = view;
    this.refresh();
    this.host.onBusy(true);
    this.schedule(run);
    say("Answering");
    try {
      await this.stream(run, sent);
      if (!message.finish) message.error = "The connection ended before the answer did.";
    } catch (e) {
      if (e.name === "AbortError") message.stopped = true;
      else message.error = e instanceof ApiError ? e.message : "Something went wrong: " + e.message;
      if (e.status === 404) this.host.onModelGone();
    }
    this.finish(run);
  }

  /* What is sent: a conversation, or for a model that knows none the text so far, to go on with. */
  request(c) {
    const settings = this.host.settings();
    const body = {
      model: this.host.model(), stream: true,
      stream_options: { include_usage: true }, timings_per_token: true,
    };
    const said = c.messages.filter((m) => m.role === "user" || m.content);
    if (this.host.converses()) {
      body.messages = said.map((m) => ({ role: m.role, content: m.content }));
      if (settings.system) body.messages.unshift({ role: "system", content: settings.system });
      if (settings.thinking)
        body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
    } else {
      body.prompt = said.map((m) => m.content).join("");
      body.max_tokens = TEXT_TOKENS;
    }
    for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"])
      if (Number.isFinite(settings[name])) body[name] = settings[name];
    return body;
  }

  async stream(run, body) {
    const onWait = (text, seconds) => {
      run.message.stats.waiting = text + " Trying again in " +
        plural(seconds, "second", "seconds") + ".";
      say(run.message.stats.waiting);
      run.start = performance.now() + seconds * 1000; /* waiting is not the answer's time */
      this.schedule(run);
    };
    const response = await call(body.prompt === undefined ? "v1/chat/completions" : "v1/completions",
      { method: "POST", body, signal: run.abort.signal, onWait });
    delete run.message.stats.waiting;
    await readEvents(response, (data) => {
      if (data !== "[DONE]") this.event(run, data);
    });
  }

  event(run, data) {
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch (e) {
      throw new ApiError("The server sent something that is not JSON.", 0);
    }
    if (chunk.error) {
      const e = chunk.error;
      throw new ApiError(typeof e === "string" ? e : e.message || "The server failed.", 500);
    }
    const m = run.message;
    const choice = chunk.choices && chunk.choices[0];
    if (choice && choice.delta) this.delta(run, choice.delta);
    if (choice && choice.text) this.delta(run, { content: choice.text });
    if (choice && choice.finish_reason) m.finish = choice.finish_reason;
    if (chunk.usage) {
      m.stats.tokens = chunk.usage.completion_tokens;
      m.stats.prompt = chunk.usage.prompt_tokens;
    }
    if (chunk.timings) run.timings = chunk.timings;
    this.schedule(run);
  }

  delta(run, delta) {
    const m = run.message;
    const thought = delta.reasoning_content || delta.reasoning;
    if (!thought && !delta.content && !delta.tool_calls) return;
    const now = performance.now();
    if (!run.first) {
      run.first = now;
      m.stats.firstMs = now - run.start;
    }
    run.events++;
    run.latest = now;
    if (thought) {
      if (!m.thought) m.thoughtStart = now;
      m.thought = (m.thought || "") + thought;
      m.thoughtMs = now - m.thoughtStart;
    }
    if (delta.content) m.content += delta.content;
    for (const part of delta.tool_calls || []) addTool(m, part);
  }

  /* Tokens a second: the server's own figure where it sends one, else events over time. */
  measure(run) {
    const m = run.message;
    const t = run.timings;
    if (t && t.predicted_per_second > 0) m.stats.perSecond = t.predicted_per_second;
    else if (run.events > 1 && run.latest > run.first)
      m.stats.perSecond = ((run.events - 1) * 1000) / (run.latest - run.first);
    if (t && t.predicted_n > 0) m.stats.tokens = t.predicted_n;
  }

  schedule(run) {
    if (run.frame || run.over) return;
    run.frame = requestAnimationFrame(() => {
      run.frame = 0;
      if (run.over) return;
      const now = performance.now();
      /* At least three quarters of the time stay free for everything else. */
      if (now - run.drawn >= 3 * run.cost) this.drawRunning(run, now);
      this.schedule(run);
    });
  }

  drawRunning(run, now) {
    this.measure(run);
    run.view.draw(true);
    if (this.stick) this.scroll.scrollTop = this.scroll.scrollHeight;
    run.drawn = performance.now();
    run.cost = run.drawn - now;
    if (now - run.saved > SAVE_EVERY_MS) {
      run.saved = now;
      this.keep(run.conversation);
    }
  }

  finish(run) {
    run.over = true;
    if (run.frame) cancelAnimationFrame(run.frame);
    this.measure(run);
    const m = run.message;
    delete m.stats.waiting;
    delete m.thoughtStart;
    if (m.stats.tokens === undefined && run.events) m.stats.tokens = run.events;
    run.view.draw(false);
    if (this.running === run) this.running = null;
    run.conversation.at = Date.now();
    this.keep(run.conversation);
    this.refresh();
    if (this.stick) this.scroll.scrollTop = this.scroll.scrollHeight;
    this.host.onBusy(false);
    sayAnswer(run.view, m);
  }

  /* A conversation that was deleted while its answer came is not kept again. */
  keep(c) {
    if (c.deleted || !c.messages.length) return;
    keepConversation(c);
    this.host.onChange(c);
  }

  keepRunning() {
    if (this.running && document.visibilityState === "hidden") this.keep(this.running.conversation);
  }

  /* ---- scrolling ---- */

  onScroll() {
    const s = this.scroll;
    this.stick = s.scrollHeight - s.scrollTop - s.clientHeight < 40;
    $("to-end").hidden = this.stick;
  }

  toEnd() {
    this.stick = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    $("to-end").hidden = true;
  }
}

/* Parts of one call share an index; its arguments come in pieces. */
function addTool(m, part) {
  if (!m.tools) m.tools = [];
  const i = Number.isInteger(part.index) && part.index >= 0 && part.index < 100 ? part.index : 0;
  while (m.tools.length <= i) m.tools.push({ name: "", arguments: "" });
  const f = part.function || {};
  if (f.name) m.tools[i].name += f.name;
  if (f.arguments) m.tools[i].arguments += f.arguments;
}

function sayAnswer(view, m) {
  const text = m.error || (view.markdown ? view.markdown.root.textContent : "");
  const part = text.length > MOST_SAID ? text.slice(0, MOST_SAID) + " … and more" : text;
  say((m.stopped ? "Stopped. " : m.error ? "Error: " : "Answer: ") + part);
}

/* Whether a key press in a field sends it: Enter alone, and not the one that ends the composition
 * of a character. */
export function sends(e) {
  return e.key === "Enter" && !e.shiftKey && !e.ctrlKey && !e.altKey && !e.metaKey &&
    !e.isComposing && e.keyCode !== 229;
}
