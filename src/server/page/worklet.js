/* Runs on the browser's audio thread: brings the microphone's samples to 24 kHz and posts them as
 * 16-bit integers, 40 ms at a time, with their loudness.
 *
 * The filter is a sinc under a Hann window whose cut-off lies below half of the slower rate, so
 * what 24 kHz cannot hold does not fold back into what it can. For output sample k the input
 * position is k * step / phases; there are as many sets of weights as positions between two
 * samples, and their number is small because the rates are whole numbers. */
const OUT_RATE = 24000;
const CHUNK = 960;
const ZERO_CROSSINGS = 16;
const MOST_PHASES = 1024;

function greatestDivisor(a, b) {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

class Resampler {
  constructor(rate) {
    const d = greatestDivisor(rate, OUT_RATE);
    this.phases = OUT_RATE / d;
    this.step = rate / d;
    if (this.phases > MOST_PHASES) {
      this.step = Math.round((this.step * MOST_PHASES) / this.phases);
      this.phases = MOST_PHASES;
    }
    const cut = 0.95 * Math.min(1, OUT_RATE / rate);
    this.half = Math.ceil(ZERO_CROSSINGS / cut);
    this.taps = 2 * this.half;
    this.weights = Array.from({ length: this.phases }, (_, p) => this.weightsOf(p, cut));
    this.past = new Float32Array(this.taps); /* the latest samples that are still needed */
    this.phase = 0;
  }

  weightsOf(phase, cut) {
    const w = new Float32Array(this.taps);
    let sum = 0;
    for (let i = 0; i < this.taps; i++) {
      const x = i - this.half + 1 - phase / this.phases;
      const a = Math.PI * x * cut;
      const sinc = a === 0 ? 1 : Math.sin(a) / a;
      w[i] = sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / this.half));
      sum += w[i];
    }
    for (let i = 0; i < this.taps; i++) w[i] /= sum;
    return w;
  }

  /* Calls put(sample) for each output sample that these inputs complete. */
  push(input, put) {
    const all = new Float32Array(this.past.length + input.length);
    all.set(this.past);
    all.set(input, this.past.length);
    let at = 0;
    while (at + this.taps <= all.length) {
      const w = this.weights[this.phase];
      let sum = 0;
      for (let i = 0; i < this.taps; i++) sum += w[i] * all[at + i];
      put(sum);
      this.phase += this.step;
      at += Math.floor(this.phase / this.phases);
      this.phase %= this.phases;
    }
    this.past = all.slice(Math.min(at, all.length));
  }
}

class Microphone extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate);
    this.chunk = new Int16Array(CHUNK);
    this.used = 0;
    this.energy = 0;
    this.put = (sample) => this.take(sample);
    this.ended = false;
    this.port.onmessage = () => {
      this.send();
      this.port.postMessage({ ended: true });
      this.ended = true;
    };
  }

  take(sample) {
    const s = Math.max(-1, Math.min(1, sample));
    this.energy += s * s;
    this.chunk[this.used++] = Math.round(s * 32767);
    if (this.used === CHUNK) this.send();
  }

  send() {
    if (this.used === 0) return;
    const pcm = this.chunk.slice(0, this.used);
    const level = Math.sqrt(this.energy / this.used);
    this.port.postMessage({ pcm: pcm.buffer, level }, [pcm.buffer]);
    this.used = 0;
    this.energy = 0;
  }

  process(inputs) {
    const channels = inputs[0];
    if (channels.length) this.resampler.push(mix(channels), this.put);
    return !this.ended;
  }
}

function mix(channels) {
  if (channels.length === 1) return channels[0];
  const one = new Float32Array(channels[0].length);
  for (const c of channels) for (let i = 0; i < one.length; i++) one[i] += c[i] / channels.length;
  return one;
}

registerProcessor("microphone", Microphone);
