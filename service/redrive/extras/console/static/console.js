// Optional comfort: the pages also work without this script. Keys, palette, copying, local times, live updates.
// There is no inline code and no eval. The server escapes the HTML that it sends.
"use strict";

const PAGES = [...document.querySelectorAll("#pages a")].map((link) => ({
  key: link.dataset.key, name: link.textContent.trim(), href: link.getAttribute("href"),
}));
const ROOT = document.body.dataset.root; // of the cell, where there are several
const TIMES = "redrive times";
let leads = false;

// what an action said is shown once: a page that is loaded again or passed on does not repeat it

if (new URLSearchParams(location.search).has("said")) {
  const there = new URL(location);
  there.searchParams.delete("said");
  history.replaceState(null, "", there);
}

// ---- times: relative or exact, in the time zone of the browser; the tooltip adds UTC

function tell(root) {
  const exact = localStorage.getItem(TIMES) === "exact";
  for (const time of root.querySelectorAll("time[datetime]")) {
    const local = new Date(time.dateTime).toLocaleString();
    time.dataset.relative ??= time.textContent;
    time.dataset.utc ??= time.title;
    time.title = `${exact ? time.dataset.relative : local}, ${time.dataset.utc}`;
    time.textContent = exact ? local : time.dataset.relative;
  }
}

function switchTimes() {
  localStorage.setItem(TIMES, localStorage.getItem(TIMES) === "exact" ? "relative" : "exact");
  tell(document);
}

// the times of charts are in the time zone of the browser, too

const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit", hour12: false },
  day: { day: "2-digit", month: "short" },
  exact: { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hour12: false },
};

function tellCharts(root) {
  for (const time of root.querySelectorAll("[data-at]")) {
    const form = time.dataset.as === "exact" && time.textContent.length < 6 ? "clock" : time.dataset.as;
    time.textContent = new Date(time.dataset.at).toLocaleString("en-GB", FORMS[form]);
  }
  for (const zone of root.querySelectorAll("[data-zone]")) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
}

tell(document);
tellCharts(document);
document.querySelector("#pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.addEventListener("htmx:load", ({ detail: { elt } }) => {
  tell(elt);
  if (elt.id !== "now") return;
  tellCharts(elt);
  asCards(elt);
  for (const figure of elt.querySelectorAll("[data-chart]")) new Chart(figure);
});

// ---- on a phone, the filters start closed

if (matchMedia("(max-width: 640px)").matches) document.querySelector(".filtering")?.removeAttribute("open");

// ---- reload the page if the session ended before a partial update

document.addEventListener("htmx:beforeSwap", (event) => {
  if (new URL(event.detail.xhr.responseURL).pathname !== "/sign-in") return;
  event.detail.shouldSwap = false;
  location.reload();
});

// ---- signing out in one tab signs out in all tabs

const session = new BroadcastChannel("redrive session");
session.addEventListener("message", () => location.assign("/sign-in"));
document.querySelector('form[action="/sign-out"]')?.addEventListener("submit", () => session.postMessage("over"));

// ---- a part that updates itself waits while somebody uses it

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (part.id === "now" && part.querySelector(":focus-visible, .stage.on, .chart details[open]")) event.preventDefault();
});

// ---- copying

for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// ---- charts: values at the pointer or by arrow keys, and zoom by dragging or Enter. The table has the values.

function address(from, to) {
  const there = new URL(location);
  for (const name of ["said", "after"]) there.searchParams.delete(name);
  there.searchParams.set("from", from);
  there.searchParams.set("to", to);
  return there;
}

function short(instant) {
  return new Date(instant).toISOString().replace(/:\d\d\.\d+Z$/, "Z");
}

class Chart {
  constructor(figure) {
    this.readout = figure.querySelector(".readout");
    this.stage = figure.querySelector(".stage");
    this.cursor = figure.querySelector(".cursor");
    this.shade = figure.querySelector(".chosen");
    this.rows = [...figure.querySelectorAll("tbody tr")];
    this.names = [...figure.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    this.until = figure.querySelector("tbody").dataset.until;
    this.at = this.begin = null;
    const stage = this.stage;
    stage.tabIndex = 0;
    for (const [name, value] of [["role", "slider"], ["aria-label", figure.querySelector("h2").textContent],
      ["aria-valuemin", 0], ["aria-valuemax", this.rows.length - 1]]) stage.setAttribute(name, value);
    this.tell(this.rows.length - 1);
    stage.addEventListener("keydown", (event) => this.press(event));
    stage.addEventListener("focus", () => this.show(this.at ?? this.rows.length - 1));
    stage.addEventListener("blur", () => this.clear());
    stage.addEventListener("pointermove", (event) => this.show(this.place(event)));
    stage.addEventListener("pointerleave", () => this.begin === null && this.clear());
    stage.addEventListener("pointerdown", (event) => this.grasp(event));
    stage.addEventListener("pointerup", () => this.zoom());
    stage.addEventListener("pointercancel", () => this.clear());
  }

  place(event) {
    const box = this.stage.getBoundingClientRect();
    const n = Math.floor(((event.clientX - box.left) / box.width) * this.rows.length);
    return Math.max(0, Math.min(this.rows.length - 1, n));
  }

  words(n) {
    const cells = [...this.rows[n].children].map((cell) => cell.textContent.trim());
    const values = cells.slice(1).map((text, k) => (this.names[k + 1] === "changes" ? text : `${this.names[k + 1]} ${text}`));
    return [cells[0], ...values.filter(Boolean)].join(" · ");
  }

  tell(n) {
    this.stage.setAttribute("aria-valuenow", n);
    this.stage.setAttribute("aria-valuetext", this.words(n));
  }

  show(n) {
    this.at = n;
    this.stage.classList.add("on");
    const percent = (k) => `${(k / this.rows.length) * 100}%`;
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, percent(n + 0.5));
    const [low, high] = this.begin === null ? [0, 0] : [Math.min(n, this.begin), Math.max(n, this.begin) + 1];
    this.shade.setAttribute("x", percent(low));
    this.shade.setAttribute("width", percent(high - low));
    this.readout.textContent = this.words(n);
    this.tell(n);
  }

  clear() {
    this.at = this.begin = null;
    this.readout.textContent = "";
    this.stage.classList.remove("on");
    this.shade.setAttribute("width", 0);
  }

  grasp(event) {
    if (event.pointerType === "touch" || event.button) return;
    this.begin = this.place(event);
    this.stage.setPointerCapture(event.pointerId);
  }

  press(event) {
    const last = this.rows.length - 1;
    const now = this.at ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      this.begin = event.shiftKey ? (this.begin ?? now) : null;
      this.show(Math.max(0, Math.min(last, next)));
    } else if (event.key === "Enter") this.zoom();
    else if (event.key === "Escape") this.clear();
  }

  zoom() {
    const { begin, at } = this;
    this.begin = null;
    if (begin === null || at === null || begin === at) return;
    const time = (n) => this.rows[n]?.querySelector("[data-at]").dataset.at ?? this.until;
    location.assign(address(short(time(Math.min(begin, at))), short(time(Math.max(begin, at) + 1))));
  }
}

for (const figure of document.querySelectorAll("[data-chart]")) new Chart(figure);

// ---- on a phone, a row of a table is a card, and each value has the name of its column

function asCards(root) {
  for (const table of root.querySelectorAll(".scroll table:not(.as-cards, .compact)")) if (!table.closest(".chart")) asCard(table);
}

function asCard(table) {
  const heads = [...table.querySelectorAll("thead th")];
  const roles = [["thead, tbody", "rowgroup"], ["tr", "row"], ["th", "columnheader"], ["td", "cell"]];
  for (const [parts, role] of roles) for (const part of table.querySelectorAll(parts)) part.setAttribute("role", role);
  table.setAttribute("role", "table");
  table.classList.add("as-cards");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.children].forEach((cell, n) => {
      cell.dataset.label = heads[n]?.textContent.trim() ?? "";
      cell.classList.toggle("none", !cell.childNodes.length);
    });
  }
}

asCards(document.getElementById("main"));

// ---- select rows: all of the page, and how many

for (const form of document.querySelectorAll("[data-rows]")) {
  const all = form.querySelector("[data-all]");
  const boxes = [...form.querySelectorAll('input[name="id"]')];
  if (!all) continue;
  all.hidden = false;
  const buttons = form.querySelectorAll("button[formaction]");
  const count = () => {
    const n = boxes.filter((box) => box.checked).length;
    form.querySelector("[data-count]").textContent = n ? `${n} selected:` : "Select rows, then:";
    for (const button of buttons) button.disabled = !n;
    all.checked = n === boxes.length;
    all.indeterminate = n > 0 && !all.checked;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    count();
  });
  form.addEventListener("change", count);
  count();
}

// ---- keys

const rows = () => [...document.querySelectorAll("main tbody tr, main .groups > li")];

function go(step) {
  const all = rows();
  const now = all.findIndex((row) => row.classList.contains("at-hand"));
  const next = all[Math.min(all.length - 1, Math.max(0, now + step))];
  if (!next) return;
  all[now]?.classList.remove("at-hand");
  next.classList.add("at-hand");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (leads) {
    leads = false;
    const page = PAGES.find((one) => one.key === event.key);
    if (page) location.assign(page.href);
    return;
  }
  if (event.key === "j") go(1);
  else if (event.key === "k") go(-1);
  else if (event.key === "g") leads = true;
  else if (event.key === "t") switchTimes();
  else if (event.key === "x") document.querySelector("tr.at-hand input[name='id']")?.click();
  else if (event.key === "?") document.getElementById("keys")?.showModal();
  else if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".filtering")?.setAttribute("open", "");
    document.querySelector(".filters input, #find")?.focus();
  }
});

document.getElementById("show-keys")?.addEventListener("click", () => document.getElementById("keys").showModal());
for (const button of document.querySelectorAll("#show-keys, #show-palette")) button.hidden = !document.getElementById("keys");

// ---- the palette: pages, queues, and a job by its id

const palette = document.getElementById("palette");
const input = palette?.querySelector("input");
const list = palette?.querySelector("ul");
let places = PAGES.map((page) => ({ ...page, hint: `g ${page.key}` }));
let chosen = 0;

async function openPalette() {
  if (!palette || palette.open) return;
  palette.showModal();
  input.value = "";
  offer();
  if (places.length > PAGES.length) return;
  const answer = await fetch(`${ROOT}/api/v1/queues`);
  if (!answer.ok) return;
  for (const row of (await answer.json()).rows) {
    const queue = encodeURIComponent(row.queue);
    places.push({ name: `Live jobs in ${row.queue}`, hint: `${row.ready} ready`, href: `${ROOT}/jobs?queue=${queue}` });
    places.push({ name: `Dead letters of ${row.queue}`, hint: `${row.dead} open`, href: `${ROOT}/dead-letters?queue=${queue}` });
  }
  offer();
}

function offer() {
  const wanted = input.value.trim().toLowerCase();
  const shown = places.filter((place) => place.name.toLowerCase().includes(wanted)).slice(0, 12);
  if (/^([a-z][a-z0-9_.-]*:)?\d{1,18}$/.test(wanted)) shown.unshift({ name: `Job ${wanted}`, hint: "", href: `${ROOT}/find?id=${wanted}` });
  list.replaceChildren(...shown.map((place) => {
    const link = document.createElement("a");
    const hint = document.createElement("small");
    link.href = place.href;
    link.textContent = place.name;
    hint.textContent = place.hint;
    const item = document.createElement("li");
    item.append(link, hint);
    return item;
  }));
  choose(0);
}

function choose(which) {
  const items = [...list.children];
  chosen = Math.max(0, Math.min(items.length - 1, which));
  items.forEach((item, n) => item.classList.toggle("chosen", n === chosen));
  items[chosen]?.scrollIntoView({ block: "nearest" });
}

input?.addEventListener("input", offer);
input?.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(chosen + step);
  } else if (event.key === "Enter") {
    event.preventDefault();
    list.children[chosen]?.querySelector("a").click();
  }
});
document.getElementById("show-palette")?.addEventListener("click", openPalette);
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
