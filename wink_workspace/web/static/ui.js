// Keys, the slider, and new entries as they are committed. Without scripts every page works by links.
"use strict";

const rows = document.getElementById("rows");
const live = document.getElementById("live");

function links() {
  return [...document.querySelectorAll(".row a")];
}

function move(step) {
  const all = links();
  if (!all.length) return;
  const current = all.findIndex((a) => a === document.activeElement || a.hasAttribute("aria-current"));
  all[Math.max(0, Math.min(all.length - 1, current + step))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) return;
  const search = document.getElementById("search");
  const up = document.getElementById("up");
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
  else if (event.key === "u" && up) up.click();
});

document.addEventListener("htmx:afterOnLoad", (event) => {
  const shown = document.querySelector("#detail article");
  if (!shown || event.detail.target.id !== "detail") return;
  for (const a of links()) {
    if (a.closest("li").dataset.id === shown.dataset.id) a.setAttribute("aria-current", "true");
    else a.removeAttribute("aria-current");
  }
});

const travel = document.getElementById("travel");
if (travel) {
  const slider = travel.querySelector("input[type=range]");
  slider.addEventListener("input", () => { travel.querySelector("output").value = slider.value; });
  slider.addEventListener("change", () => travel.submit());
}

async function loaded(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function addNew(state) {
  const page = await loaded(`${rows.dataset.rows}&state=${state}`);
  const fresh = [...page.body.children];
  const ids = new Set(fresh.map((row) => row.dataset.id));
  const old = [...rows.children];
  const chosen = rows.querySelector("[aria-current]")?.closest("li").dataset.id;
  const focused = document.activeElement.closest("#rows li")?.dataset.id;
  const last = old.findLastIndex((row) => row.dataset.id && ids.has(row.dataset.id));
  const older = last < 0 ? [] : old.slice(last + 1); // only the newest ones are asked for
  const names = (row) => [...row.querySelectorAll(".branch")];
  const moved = new Set(fresh.flatMap(names).map((name) => name.textContent));
  for (const name of older.flatMap(names)) if (moved.has(name.textContent)) name.remove();
  rows.replaceChildren(...fresh.filter((row) => row.dataset.id || !older.length), ...older);
  for (const row of rows.children) {
    if (row.dataset.id && row.dataset.id === chosen) row.querySelector("a").setAttribute("aria-current", "true");
    if (row.dataset.id && row.dataset.id === focused) row.querySelector("a").focus({ preventScroll: true });
  }
  htmx.process(rows);
}

function nameOf(element) {
  return [element.tagName, element.name, element.value, element.href].join(" ");
}

async function showPart(part) {
  const page = await loaded(part.dataset.part);
  const chosen = [...part.querySelectorAll("input:checked")].map((input) => [input.name, input.value]);
  const focused = part.contains(document.activeElement) && nameOf(document.activeElement);
  part.replaceChildren(...page.body.childNodes);
  for (const input of part.querySelectorAll("input[type=radio]")) {
    input.checked = chosen.some(([name, value]) => input.name === name && input.value === value);
  }
  if (focused) [...part.querySelectorAll("a, input, button")].find((each) => nameOf(each) === focused)?.focus();
}

const part = document.getElementById("part");
const watched = rows || part;
const events = watched && new EventSource(watched.dataset.watch);
let wanted = "", shown = ""; // states of the workspace
let isLoading = false;

// One request at a time, so that an older answer never replaces a newer one.
async function showNewest() {
  if (isLoading) return;
  isLoading = true;
  try {
    while (shown !== wanted) {
      const state = wanted;
      await (rows ? addNew(state) : showPart(part));
      shown = state;
    }
  } catch { // an error of the server; or it has ended, then the stream opens when it is back
    if (events.readyState === EventSource.OPEN) setTimeout(showNewest, 1000);
  } finally { isLoading = false; }
}

function onLost(stream) {
  live.textContent = stream.readyState === EventSource.CLOSED
    ? "The server has ended. Start wink-workspace ui again, and open its link."
    : "The server does not answer; trying again.";
}

if (events) {
  events.onopen = () => { live.textContent = "live"; showNewest(); };
  events.onerror = () => onLost(events);
  events.addEventListener("changed", (event) => { wanted = event.lastEventId; showNewest(); });
  events.addEventListener("gone", () => { live.textContent = "This workspace was deleted."; events.close(); });
}

const run = document.getElementById("run");

// What can be done when the run is over; the text that was not sent stays.
async function showNext() {
  const page = await loaded(location.href);
  if (page.querySelector("#run[data-watch]")) { location.reload(); return; } // another run has begun
  const typed = document.getElementById("message")?.value;
  document.getElementById("next").replaceWith(page.getElementById("next"));
  const message = document.getElementById("message");
  if (typed && message) message.value = typed;
}

if (run?.dataset.watch) {
  const lines = new EventSource(run.dataset.watch);
  lines.onopen = () => { live.textContent = "live"; run.replaceChildren(); };
  lines.onerror = () => onLost(lines);
  lines.addEventListener("line", (event) => {
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 4;
    const page = new DOMParser().parseFromString(event.data, "text/html");
    run.append(...page.body.children);
    while (run.childElementCount > 5000) run.firstElementChild.remove();
    if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
  });
  lines.addEventListener("over", (event) => {
    live.textContent = event.data;
    lines.close();
    showNext().catch(() => {}); // the server has ended, or cannot say it
  });
}
