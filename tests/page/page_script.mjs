// The status page's script over as much of a document as it uses: reads {"html", "phone", "answers"} from stdin, lets
// the page ask once for each answer ([status, body]), and prints what the page then shows and has asked for.

import { readFileSync } from "node:fs";
import vm from "node:vm";

const { html, phone, answers } = JSON.parse(readFileSync(0, "utf8"));

class Element {
  constructor(tag) {
    this.tag = tag; this.attributes = {}; this.childNodes = []; this.dataset = {}; this.hidden = false;
    this.style = {}; this.listeners = {};
    const names = () => (this.attributes.class ?? "").split(" ").filter(Boolean);
    this.classList = {
      add: (name) => { this.attributes.class = [...new Set([...names(), name])].join(" "); },
      remove: (name) => { this.attributes.class = names().filter((n) => n !== name).join(" "); },
    };
  }
  get className() { return this.attributes.class ?? ""; }
  set className(name) { this.attributes.class = name; }
  get textContent() { return this.childNodes.map((n) => typeof n === "string" ? n : n.textContent).join(""); }
  set textContent(text) { this.childNodes = text === "" ? [] : [String(text)]; }
  get lastChild() { return this.childNodes.at(-1); }
  append(...nodes) { this.childNodes.push(...nodes); }
  replaceChildren(...nodes) { this.childNodes = nodes; }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "open" || name === "hidden") this[name] = true;
  }
  getAttribute(name) { return this.attributes[name] ?? null; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(kind, listener) { (this.listeners[kind] ??= []).push(listener); }
  getBoundingClientRect() { return { left: 0, top: 0, width: 600, height: 100 }; }
  focus() {}
  all() { return [this, ...this.childNodes.flatMap((n) => typeof n === "string" ? [] : n.all())]; }
  querySelector(selector) {
    if (!/^\.[a-z]+$/.test(selector)) throw new Error(`this stand-in does not know ${selector}`);
    return this.all().find((e) => e !== this && e.className.split(" ").includes(selector.slice(1))) ?? null;
  }
  getContext() {
    const createImageData = (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) });
    return { createImageData, putImageData() {} };
  }
}

const named = Object.fromEntries([...html.matchAll(/<(\w+)[^>]*\bid="([\w-]+)"([^>]*)>/g)].map(([, tag, id, more]) => {
  const element = new Element(tag);
  element.hidden = /\bhidden\b/.test(more);
  return [id, element];
}));
const colours = [...html.matchAll(/(--[\w-]+): (#[\da-f]+)/g)].map(([, name, value]) => [name, value]);
const style = Object.fromEntries(colours.reverse());  // by day: the first of each name
let next = null, clock = 0;
const asked = [], stored = new Map();
const page = {
  document: {
    createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag),
    documentElement: new Element("html"), getElementById: (id) => named[id], addEventListener() {},
    hidden: false, title: "",
  },
  getComputedStyle: () => ({ getPropertyValue: (name) => style[name] ?? "" }),
  matchMedia: (query) => ({ matches: phone && query.includes("max-width"), addEventListener() {} }),
  sessionStorage: {
    getItem: (k) => stored.get(k) ?? null, setItem: (k, v) => stored.set(k, v), removeItem: (k) => stored.delete(k),
  },
  performance: { now: () => clock }, AbortSignal: { timeout: () => null },
  setTimeout: (act, ms) => { next = [act, ms]; return 1; }, clearTimeout: () => { next = null; },
  fetch: async (url) => {
    asked.push(url);
    const [status, told] = answers[asked.length - 1], body = structuredClone(told);
    for (const large of ["experts", "history"]) if (!url.includes(`${large}=1`)) delete body[large];  // as the server
    return { ok: status === 200, status, json: async () => body };
  },
};
vm.runInNewContext(/<script>([^]*)<\/script>/.exec(html)[1], page, { filename: "status.html" });
const settled = () => new Promise((done) => setImmediate(done));
await settled();
while (asked.length < answers.length) {
  if (!next) throw new Error("the page asks no more");
  const [act, ms] = next;
  clock += ms;
  act();
  await settled();
}

// What can be seen: an open part's text, a closed one's summary.
const shown = (e) => typeof e === "string" ? e : e.hidden ? "" :
  (e.tag === "details" && !e.open ? e.childNodes.slice(0, 1) : e.childNodes).map(shown).filter(Boolean).join(" ");
const cards = named.main.childNodes.filter((c) => !c.hidden);
const title = (card) => card.all().find((e) => e.tag === "h2").textContent;
console.log(JSON.stringify({
  asked, state: named["state-text"].textContent, notices: named.notices.childNodes.map((n) => n.textContent),
  cards: cards.map((c) => ({ title: title(c), tag: c.tag, open: c.open === true, text: shown(c),
    labels: c.querySelector(".layers")?.childNodes.map((l) => [l.textContent, l.style.top]) ?? null,
    lines: c.all().filter((e) => e.tag === "path").map((e) => (e.attributes.d ?? "").split("L").length - 1),
    spoken: c.all().map((e) => e.attributes["aria-label"]).filter(Boolean) })),
}));
