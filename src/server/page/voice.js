/* Dictation: the microphone to /v1/realtime, and its words back.
 *
 * The server is asked to find the pauses itself (server_vad). Of the utterance that is being spoken,
 * words that are certain come as deltas, and with each partial event the words after them, which may
 * still change. At the end the rest is committed and its text awaited. */
import { ApiError, askForKey, openSocket, socketWantsKey, url } from "./api.js";

const OPEN_MS = 10000; /* for the socket and the session */
const LAST_TEXT_MS = 15000; /* for the text of what was said last */

export const voicePossible = () =>
  window.isSecureContext && !!navigator.mediaDevices && !!window.AudioWorkletNode;

export class Dictation {
  /* on: text(final, partial) with all that was said so far, to be shown one after the other; level(0..1), error(message),
   * end(final) once nothing more will come. */
  constructor(model, language, on) {
    this.model = model;
    this.language = language;
    this.on = on;
    this.items = new Map(); /* of the server, in the order of their beginning */
    this.state = "new"; /* then "open", "ending", "over" */
    this.sent = 0; /* samples since the last commit */
  }

  async start() {
    try {
      this.stream = await microphone();
      if (this.state === "over") return this.release();
      try {
        await this.connect();
      } catch (e) {
        if (this.state === "over" || !(await socketWantsKey()) || !(await askForKey())) throw e;
        await this.connect();
      }
      await this.listen();
    } catch (e) {
      this.fail(e instanceof ApiError ? e.message : "Dictation failed: " + e.message);
    }
    return undefined;
  }

  connect() {
    const socket = openSocket("v1/realtime?intent=transcription");
    this.socket = socket;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new ApiError("The server did not open a session in time.", 0)), OPEN_MS);
      this.ready = () => {
        clearTimeout(timer);
        resolve();
      };
      socket.onmessage = (e) => this.event(e.data);
      socket.onclose = () => {
        clearTimeout(timer);
        reject(new ApiError("The server did not accept the dictation.", 0));
        if (this.state === "open") this.fail("The connection was lost.");
        else if (this.state === "ending") this.finish();
      };
    });
  }

  async listen() {
    if (this.state === "over") return;
    const context = new AudioContext();
    this.context = context;
    await context.audioWorklet.addModule(url("page/worklet.js").href);
    if (this.state === "over") return;
    const source = context.createMediaStreamSource(this.stream);
    this.node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
    this.node.port.onmessage = (e) => this.heard(e.data);
    source.connect(this.node);
    await context.resume();
    this.stream.getTracks()[0].addEventListener("ended", () => this.stop());
  }

  heard(data) {
    if (data.ended) {
      this.commit();
      return;
    }
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.sent += data.pcm.byteLength / 2;
    this.socket.send(JSON.stringify({ type: "input_audio_buffer.append", audio: base64(data.pcm) }));
    this.on.level(data.level);
  }

  event(text) {
    let e;
    try {
      e = JSON.parse(text);
    } catch (error) {
      return;
    }
    const kind = "conversation.item.input_audio_transcription.";
    switch (e.type) {
      case "session.created":
        this.socket.send(JSON.stringify(this.session()));
        break;
      case "session.updated":
        if (this.state === "new") this.state = "open";
        this.ready();
        break;
      case "input_audio_buffer.committed":
        this.item(e.item_id);
        this.sent = 0;
        break;
      case kind + "partial":
        this.partial(this.item(e.item_id), e.text || "", e.uncertain || "");
        break;
      case kind + "delta":
        this.delta(this.item(e.item_id), e.delta || "");
        break;
      case kind + "completed":
        this.complete(e.item_id, e.transcript || "");
        break;
      case kind + "failed":
        this.on.error((e.error && e.error.message) || "A part was not understood.");
        this.complete(e.item_id, "");
        break;
      case "error":
        this.refused(e.error);
        break;
      default: /* events that this page does not need */
    }
  }

  session() {
    const transcription = { model: this.model };
    if (this.language) transcription.language = this.language;
    return {
      type: "session.update",
      session: {
        type: "transcription",
        audio: { input: {
          format: { type: "audio/pcm", rate: 24000 },
          transcription,
          turn_detection: { type: "server_vad", silence_duration_ms: 500 },
        } },
        reel: { partials: true },
      },
    };
  }

  item(id) {
    if (!this.items.has(id)) this.items.set(id, { text: "", partial: "", done: false });
    return this.items.get(id);
  }

  delta(item, more) {
    if (item.done) return;
    item.text += more;
    item.partial = item.partial.startsWith(more) ? item.partial.slice(more.length) : "";
    this.show();
  }

  /* text: all of the item, uncertain: its end. */
  partial(item, text, uncertain) {
    if (item.done) return;
    item.text = text.slice(0, text.length - uncertain.length);
    item.partial = uncertain;
    this.show();
  }

  complete(id, text) {
    const item = this.item(id);
    item.text = text.trim();
    item.partial = "";
    item.done = true;
    this.show();
    this.endIfDone();
  }

  show() {
    let final = "";
    let partial = "";
    for (const i of this.items.values()) {
      final = join(final, i.text);
      if (i.partial) partial = i.text || !final ? i.partial : " " + i.partial;
    }
    this.final = final;
    this.on.text(final, partial);
  }

  /* An empty buffer at the end is no failure: everything was said before. */
  refused(error) {
    const message = (error && error.message) || "The server refused the dictation.";
    if (this.state === "ending") this.finish();
    else this.fail(message);
  }

  stop() {
    if (this.state === "new") {
      this.finish();
      return;
    }
    if (this.state !== "open") return;
    this.state = "ending";
    if (this.node) this.node.port.postMessage("end");
    else this.commit();
    this.timer = setTimeout(() => this.finish(), LAST_TEXT_MS);
  }

  commit() {
    this.stopMicrophone();
    this.committed = true;
    if (this.sent > 0 && this.socket.readyState === WebSocket.OPEN)
      this.socket.send(JSON.stringify({ type: "input_audio_buffer.commit" }));
    else this.endIfDone();
  }

  endIfDone() {
    if (this.state !== "ending" || !this.committed) return;
    for (const i of this.items.values()) if (!i.done) return;
    if (this.sent === 0) this.finish();
  }

  fail(message) {
    if (this.state === "over") return;
    this.on.error(message);
    this.finish();
  }

  finish() {
    if (this.state === "over") return;
    for (const i of this.items.values()) {
      i.text += i.partial;
      i.partial = "";
      i.done = true;
    }
    this.show();
    this.state = "over";
    this.release();
    this.on.end(this.final || "");
  }

  stopMicrophone() {
    if (this.stream) for (const t of this.stream.getTracks()) t.stop();
    if (this.context) this.context.close().catch(() => {});
    this.context = null;
  }

  release() {
    clearTimeout(this.timer);
    this.stopMicrophone();
    if (this.socket) this.socket.close();
  }
}

async function microphone() {
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true },
    });
  } catch (e) {
    if (e.name === "NotAllowedError") throw new ApiError("The microphone was not allowed.", 0);
    if (e.name === "NotFoundError") throw new ApiError("No microphone was found.", 0);
    throw new ApiError("The microphone cannot be used: " + e.message, 0);
  }
}

export function join(a, b) {
  if (!a || !b) return a || b;
  return /\s$/.test(a) || /^\s/.test(b) ? a + b : a + " " + b;
}

function base64(bytes) {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)));
}
