"use strict";
// Comfort for pages that work without: completion of names, the map that can be moved.

// Completion: a list of names under a field, by keyboard or by hand.
function complete(field, number) {
  const list = document.createElement("ul");
  list.className = "list";
  list.id = "names-" + number;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "names");
  list.hidden = true;
  field.parentNode.appendChild(list);
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-controls", list.id);
  field.setAttribute("aria-expanded", "false");
  let found = [], chosen = -1, timer = 0, latest = 0;

  function show(entries) {
    found = entries;
    chosen = -1;
    list.replaceChildren(...entries.map((entry, place) => {
      const item = document.createElement("li");
      item.id = list.id + "-" + place;
      item.setAttribute("role", "option");
      const name = document.createElement("bdi");
      name.textContent = entry.label;
      const facts = document.createElement("small");
      facts.textContent = entry.facts.toLocaleString("en") + (entry.facts === 1 ? " fact" : " facts");
      item.append(name, facts);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(place); });
      return item;
    }));
    list.hidden = !entries.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    field.removeAttribute("aria-activedescendant");
  }
  function mark(place) {
    chosen = (place + found.length) % found.length;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    field.setAttribute("aria-activedescendant", list.id + "-" + chosen);
  }
  function take(place) {
    const entry = found[place];
    show([]);
    if (field.dataset.go) {
      location.href = field.dataset.go + "?name=" + encodeURIComponent(entry.name);
    } else {
      // The label is what people read; the name, where another entity has the same label.
      const same = found.filter((one) => one.label === entry.label).length;
      field.value = same > 1 || field.dataset.exact ? entry.name : entry.label;
    }
  }
  async function ask() {
    const text = field.value.trim(), turn = ++latest;
    const source = field.dataset.from && document.getElementById(field.dataset.from);
    const run = source ? source.value : field.dataset.run;
    if (!text) { show([]); return; }
    const about = new URLSearchParams({ q: text, kind: field.dataset.complete, top: "8" });
    try {
      const answer = await fetch("/api/r/" + encodeURIComponent(run) + "/search?" + about);
      if (!answer.ok || turn !== latest || document.activeElement !== field) return;
      const data = await answer.json();
      show(field.dataset.complete === "relation" ? data.relations : data.entities);
    } catch (error) { /* the service has ended: the form still says so */ }
  }
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 60); });
  field.addEventListener("blur", () => show([]));
  field.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") mark(chosen + 1);
    else if (event.key === "ArrowUp") mark(chosen < 0 ? found.length - 1 : chosen - 1);
    else if (event.key === "Escape") show([]);
    else if (event.key === "Enter" && chosen >= 0) take(chosen);
    else return;
    event.preventDefault();
  });
}

// The map: points of the part that is shown, the most linked first; a closer look loads more.
function openMap(frame) {
  const canvas = document.createElement("canvas"), words = frame.querySelector("output");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Map of the vectors. Arrow keys move, plus and minus zoom; the list below has the same entities.");
  frame.prepend(canvas);
  const pen = canvas.getContext("2d"), query = new URLSearchParams(location.search);
  let data = { points: [], kinds: [], inside: 0, focus: null }, near = null, timer = 0, turn = 0;
  const bounds = ["left", "right", "bottom", "top"].map((name) => parseFloat(query.get(name)));
  const whole = { x: 0, y: 0, half: 1.1 * Math.max(1, canvas.clientHeight / canvas.clientWidth) };
  let view = { ...whole };
  if (bounds.every(Number.isFinite)) {
    view = { x: (bounds[0] + bounds[1]) / 2, y: (bounds[2] + bounds[3]) / 2, half: (bounds[3] - bounds[2]) / 2 };
  } else if (frame.dataset.x) {
    view = { x: Number(frame.dataset.x), y: Number(frame.dataset.y), half: 0.35 };
  }
  const scale = () => canvas.clientHeight / (2 * view.half);
  const place = (point) => [canvas.clientWidth / 2 + (point.x - view.x) * scale(), canvas.clientHeight / 2 - (point.y - view.y) * scale()];
  const wide = () => view.half * canvas.clientWidth / canvas.clientHeight;

  function draw() {
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    pen.scale(ratio, ratio);
    const colours = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => style.getPropertyValue("--k" + i));
    const last = data.kinds.length - 1;
    pen.globalAlpha = 0.75;
    for (const point of [...data.points].reverse()) {
      const [x, y] = place(point);
      pen.fillStyle = colours[point.kind === last ? 7 : point.kind];
      pen.beginPath();
      pen.arc(x, y, Math.min(7, 2 + Math.log10(1 + point.facts)), 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
    label(colours, style);
    words.textContent = data.points.length.toLocaleString("en") + " of " + data.inside.toLocaleString("en") + " entities here";
  }
  function label(colours, style) {
    pen.font = "12px system-ui, sans-serif";
    pen.lineWidth = 3;
    pen.strokeStyle = style.getPropertyValue("--card");
    const taken = [], marked = [near, data.focus].filter(Boolean);
    for (const point of [...marked, ...data.points]) {
      const [x, y] = place(point), strong = marked.includes(point);
      if (x < 0 || y < 0 || x > canvas.clientWidth || y > canvas.clientHeight) continue;
      if (!strong && taken.length > 40) break;
      const text = point.label.length > 30 ? point.label.slice(0, 29) + "…" : point.label;
      const box = [x + 6, y - 8, x + 10 + 7 * text.length, y + 8];
      if (!strong && taken.some((b) => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3])) continue;
      taken.push(box);
      pen.fillStyle = style.getPropertyValue(strong ? "--c2" : "--ink");
      if (strong) { pen.beginPath(); pen.arc(x, y, 5, 0, 7); pen.fill(); }
      pen.strokeText(text, x + 8, y + 4);
      pen.fillText(text, x + 8, y + 4);
    }
  }
  function moved() {
    draw();
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  }
  async function load() {
    const mine = ++turn, part = new URLSearchParams(query);
    const edges = { left: view.x - wide(), right: view.x + wide(), bottom: view.y - view.half, top: view.y + view.half };
    for (const name in edges) part.set(name, edges[name].toFixed(4));
    history.replaceState(null, "", "?" + part);
    try {
      const answer = await fetch("/api" + location.pathname + "?" + part);
      if (!answer.ok || mine !== turn) return;
      data = await answer.json();
      draw();
    } catch (error) { /* the points that are there stay */ }
  }
  function zoom(factor, x = view.x, y = view.y) {
    const half = Math.min(20, Math.max(0.002, view.half * factor)), real = half / view.half;
    view = { x: x + (view.x - x) * real, y: y + (view.y - y) * real, half };
    moved();
  }
  function shift(x, y) { view = { ...view, x: view.x + x * view.half, y: view.y + y * view.half }; moved(); }
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [view.x + (event.clientX - box.left - box.width / 2) / scale(), view.y - (event.clientY - box.top - box.height / 2) / scale()];
  };
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, ...at(event)); }, { passive: false });
  const held = new Map();
  let dragged = false, spread = 0;
  canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); dragged = false; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) { hover(event); return; }
    held.set(event.pointerId, event);
    const fingers = [...held.values()];
    if (fingers.length > 1) {
      const now = Math.hypot(fingers[0].clientX - fingers[1].clientX, fingers[0].clientY - fingers[1].clientY);
      if (spread) zoom(spread / now);
      spread = now;
      dragged = true;
      return;
    }
    const x = event.clientX - before.clientX, y = event.clientY - before.clientY;
    if (Math.abs(x) + Math.abs(y) > 2) dragged = true;
    view = { ...view, x: view.x - x / scale(), y: view.y + y / scale() };
    moved();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => { held.delete(event.pointerId); spread = 0; });
  }
  function hover(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 14;
    for (const point of data.points) {
      const [px, py] = place(point), far = Math.hypot(px - x, py - y);
      if (far < least) { least = far; best = point; }
    }
    if (best !== near) { near = best; canvas.style.cursor = near ? "pointer" : "grab"; draw(); }
  }
  canvas.addEventListener("click", (event) => {
    if (dragged) return;
    hover(event);
    if (near) location.href = frame.dataset.entity + "?name=" + encodeURIComponent(near.name);
  });
  canvas.addEventListener("keydown", (event) => {
    const ways = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowUp: [0, 0.2], ArrowDown: [0, -0.2] };
    if (ways[event.key]) shift(...ways[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1 / 1.4);
    else if (event.key === "-") zoom(1.4);
    else if (event.key === "0") { view = { ...whole }; moved(); }
    else return;
    event.preventDefault();
  });
  const buttons = document.querySelector(".buttons");
  buttons.hidden = false;
  buttons.addEventListener("click", (event) => {
    const what = event.target.dataset.zoom;
    if (what === "in") zoom(1 / 1.6);
    else if (what === "out") zoom(1.6);
    else if (what) { view = { ...whole }; moved(); }
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  load();
}

document.querySelectorAll("input[data-complete]").forEach(complete);
const frame = document.querySelector("[data-map]");
if (frame) openMap(frame);
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  const search = document.querySelector("input[name=q]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && search) {
    event.preventDefault();
    search.focus();
  }
});
