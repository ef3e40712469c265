/* What the pages that refresh themselves share: what comes anew leaves the reader where he is. */
"use strict";
window.awaLive = (() => {
  const REACHABLE = "a[href], button, input, select, summary, [tabindex]";

  /* What the keyboard reaches, by a name that it also has in the next version of its part. */
  function places(part) {
    const found = new Map();
    for (const element of part.querySelectorAll(REACHABLE)) {
      const named = element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent.trim();
      const within = element.closest("details[data-key]")?.dataset.key ?? "";
      const name = `${element.localName} ${within} ${named}`;
      let count = 1;
      while (found.has(`${name} ${count}`)) count += 1;
      found.set(`${name} ${count}`, element);
    }
    return found;
  }

  /* Whether the reader is selecting text of this part, to copy it. */
  function isSelected(part) {
    const selection = getSelection();
    return !selection.isCollapsed && (part.contains(selection.anchorNode) || part.contains(selection.focusNode));
  }

  /* What is opened, scrolled and focused in this part; call what this returns with the part that took its place. */
  function keep(part) {
    const opened = new Map([...part.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
    const before = [...places(part)].map(([name, element]) => ({
      name,
      left: element.scrollLeft,
      top: element.scrollTop,
      isFocused: element === document.activeElement,
    }));
    return (fresh) => {
      for (const each of fresh.querySelectorAll("details[data-key]")) {
        if (opened.has(each.dataset.key)) each.open = opened.get(each.dataset.key);
      }
      const after = places(fresh);
      for (const { name, left, top, isFocused } of before) {
        const element = after.get(name);
        if (!element) continue;
        if (left || top) [element.scrollLeft, element.scrollTop] = [left, top];
        if (isFocused) element.focus({ preventScroll: true });
      }
    };
  }

  return { isSelected, keep };
})();
