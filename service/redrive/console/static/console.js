// Comfort on top of pages that work without it: keys, copying, local times. No inline code, no eval.
"use strict";

const PAGES = { o: "/", g: "/groups", d: "/dead-letters", l: "/jobs", c: "/campaigns", q: "/queues", b: "/breakers", a: "/audit" };
let leads = false;

for (const time of document.querySelectorAll("time[datetime]")) {
  const local = new Date(time.dateTime).toLocaleString();
  time.title = `${local} here, ${time.title}`;
}

for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
  });
}

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
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (leads) {
    leads = false;
    if (PAGES[event.key]) location.assign(PAGES[event.key]);
    return;
  }
  if (event.key === "j") go(1);
  else if (event.key === "k") go(-1);
  else if (event.key === "g") leads = true;
  else if (event.key === "?") {
    const keys = document.querySelector(".keys");
    keys.hidden = !keys.hidden;
    if (!keys.hidden) keys.scrollIntoView();
  } else if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".filters input, #find")?.focus();
  }
});
