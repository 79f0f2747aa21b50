/* Small helpers that build and find nodes. Text goes in as text nodes only: nothing in this page
 * parses HTML, so what a model writes cannot become markup. */
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/* An element with attributes; names that begin with "on" are listeners, false and null are left
 * out. Strings among the children become text. */
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", "#i-" + name);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export function setIcon(button, name) {
  button.querySelector("use").setAttribute("href", "#i-" + name);
}

/* A button that shows an icon, and a word too when `word` is given. */
export function button(name, label, onclick, word) {
  const b = el("button", { type: "button", class: word ? "act" : "icon small", onclick });
  b.append(icon(name));
  if (word) b.append(word);
  b.setAttribute("aria-label", label);
  b.title = label;
  return b;
}

/* Tells people who use a screen reader. One message at a time: a new one replaces the old. */
export function say(text) {
  $("said").textContent = text;
}

/* Copies, and shows on the button for a moment that it did. */
export async function copyText(text, b) {
  let ok = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch (e) {
    ok = copyBySelection(text); /* pages of plain http have no clipboard object */
  }
  say(ok ? "Copied" : "This browser did not allow copying");
  if (!ok) return;
  setIcon(b, "done");
  setTimeout(() => setIcon(b, "copy"), 1500);
}

function copyBySelection(text) {
  const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  let ok = false;
  try {
    ok = document.execCommand("copy");
  } catch (e) {
    ok = false;
  }
  area.remove();
  if (before) before.focus();
  return ok;
}

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const whole = new Intl.NumberFormat("en");
export const count = (n) => whole.format(Math.round(n));
export const plural = (n, one, many) => count(n) + " " + (Math.round(n) === 1 ? one : many);

export function duration(ms) {
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  return Math.floor(ms / 60000) + " min " + Math.round((ms % 60000) / 1000) + " s";
}
