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
  const said = root.querySelector("[data-said]");
  const shown = new Map();
  let url = root.dataset.url;
  let seconds = Number(root.dataset.refresh);
  let timer = 0;
  let asking = false;
  const held = new Map(); // the parts that come when the reader has let go of those that are shown
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
    const heading = document.querySelector(".awa-heading");
    const before = heading.textContent.trim();
    for (const part of fresh.querySelectorAll("[data-live]")) put(part.dataset.live, part);
    if (heading.textContent.trim() !== before) say(heading.textContent.trim());
  }

  function put(name, part) {
    held.delete(name); // what came before is out of date
    const old = document.querySelector(`[data-live="${name}"]`);
    if (!old || shown.get(name) === mark(part)) return;
    if (isHeld(name, old)) {
      held.set(name, part);
      return;
    }
    const restore = awaLive.keep(old);
    shown.set(name, mark(part));
    old.replaceWith(document.adoptNode(part));
    restore(part);
  }

  /* Under the pointer or the focus no button becomes another one: who cancels a job that has just failed
     would retry it. */
  function isHeld(name, old) {
    return (name === "actions" && old.matches(":hover, :focus-within")) || awaLive.isSelected(old);
  }

  function release() {
    for (const [name, part] of [...held]) put(name, part);
  }

  /* To who listens: that the state is another one, or that no more comes. */
  function say(text) {
    said.textContent = text.replace(/\s+/g, " ");
  }

  function end(text) {
    clearTimeout(timer);
    seconds = 0;
    follow.disabled = true;
    if (text) say((note.textContent = text));
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
      if (failures === 1) say(note.textContent);
    } finally {
      asking = false;
      if (seconds) timer = setTimeout(ask, 1000 * Math.min(seconds * 2 ** failures, LONGEST_WAIT));
    }
  }

  follow.addEventListener("change", ask);
  document.addEventListener("visibilitychange", ask);
  for (const letGo of ["mouseout", "focusout", "selectionchange"]) {
    document.addEventListener(letGo, () => held.size && setTimeout(release)); // when it is elsewhere
  }
  bar.hidden = false;
  tell(note.dataset.told);
  timer = setTimeout(ask, 1000 * seconds);
})();
