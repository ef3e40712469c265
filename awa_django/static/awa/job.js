/* Keeps the page of an unfinished job up to date: asks for the parts that change, and replaces those
   that did. It asks nothing while the tab is hidden, and stops when the job has ended. */
"use strict";
(() => {
  const LONGEST_WAIT = 60;
  const root = document.querySelector(".awa-job");
  const bar = root && root.querySelector(".awa-follow");
  if (!bar) return;
  const follow = bar.querySelector("input");
  const note = bar.querySelector("[data-told]");
  const shown = new Map();
  let url = root.dataset.url;
  let seconds = Number(root.dataset.refresh);
  let timer = 0;
  let asking = false;
  let held = null; // the actions that come when the pointer has left those that are shown
  let failures = 0;
  let asOf = new Date();

  for (const part of document.querySelectorAll("[data-live]")) shown.set(part.dataset.live, mark(part));

  /* By what a part has changed: the tokens in its forms are others each time. */
  function mark(part) {
    return part.dataset.key || part.innerHTML;
  }

  function tell(text) {
    note.textContent = text.replace("{time}", asOf.toLocaleTimeString(document.documentElement.lang || []));
  }

  function replace(fresh) {
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const name = part.dataset.live;
      const old = document.querySelector(`[data-live="${name}"]`);
      if (name === "actions") held = null; // what came before is out of date
      if (!old || shown.get(name) === mark(part)) continue;
      if (name === "actions" && old.matches(":hover")) {
        held = document.adoptNode(part);
        old.addEventListener("mouseleave", release);
        continue;
      }
      for (const details of part.querySelectorAll("details[data-key]")) {
        const before = old.querySelector(`details[data-key="${details.dataset.key}"]`);
        if (before) details.open = before.open;
      }
      shown.set(name, mark(part));
      old.replaceWith(document.adoptNode(part));
    }
  }

  /* Under the pointer no button becomes another one: who cancels a job that has just failed would retry it. */
  function release() {
    if (!held) return;
    shown.set("actions", mark(held));
    document.querySelector('[data-live="actions"]').replaceWith(held);
    held = null;
  }

  function end(text) {
    clearTimeout(timer);
    seconds = 0;
    follow.disabled = true;
    if (text) note.textContent = text;
    else bar.hidden = true;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking || !seconds || !follow.checked || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(url, { headers: { "X-Requested-With": "XMLHttpRequest" }, cache: "no-store" });
      if (answer.status >= 500 || answer.status === 429) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".awa-job");
      if (!answer.ok || !fresh || !fresh.dataset.url) return end(note.dataset.gone);
      url = fresh.dataset.url; // a job that moved to the other table has its page there
      replace(fresh);
      failures = 0;
      asOf = new Date();
      tell(note.dataset.told);
      seconds = Number(fresh.dataset.refresh);
      if (!seconds) end("");
    } catch {
      failures += 1;
      tell(note.dataset.silent);
    } finally {
      asking = false;
      if (seconds) timer = setTimeout(ask, 1000 * Math.min(seconds * 2 ** failures, LONGEST_WAIT));
    }
  }

  follow.addEventListener("change", ask);
  document.addEventListener("visibilitychange", ask);
  bar.hidden = false;
  tell(note.dataset.told);
  timer = setTimeout(ask, 1000 * seconds);
})();
