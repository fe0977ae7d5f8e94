// What pages do beyond links and forms: keys, live pages, values under the pointer.
// Every page says the same without it.
"use strict";
(() => {
  const moves = { ArrowLeft: -1, ArrowRight: 1 };
  const places = {
    o: "/console",
    t: "/console/topics",
    r: "/console/records",
    g: "/console/groups",
    c: "/console/compaction",
    d: "/console/log-dirs",
  };
  const SECOND_KEY_MS = 1500;

  for (const each of document.querySelectorAll("[data-script]")) each.hidden = false;

  // One tab stop a strip: the arrow keys, Home and End move among its blocks.
  document.addEventListener("keydown", (event) => {
    const strip = event.target.closest?.("[data-strip]");
    if (!strip) return;
    const blocks = [...strip.querySelectorAll("a")];
    const at = blocks.indexOf(event.target);
    let to = at + (moves[event.key] ?? 0);
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = blocks.length - 1;
    if (at < 0 || to === at || to < 0 || to >= blocks.length) return;
    event.preventDefault();
    blocks[at].setAttribute("tabindex", "-1");
    blocks[to].setAttribute("tabindex", "0");
    blocks[to].focus();
  });

  // A block's row is in a table that may be folded.
  document.addEventListener("click", (event) => {
    const block = event.target.closest?.("[data-strip] a");
    if (!block) return;
    const row = document.getElementById(block.getAttribute("href").slice(1));
    row?.closest("details")?.setAttribute("open", "");
  });

  // ---- keys: "/" searches, "g" and a letter leads to a page, "?" lists them, data-key clicks

  const keys = document.getElementById("keys");
  let wentAt = -Infinity; // when "g" was pressed

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable], dialog[open]")) return;
    const isSecond = event.timeStamp - wentAt < SECOND_KEY_MS;
    wentAt = event.key === "g" && !isSecond ? event.timeStamp : -Infinity;
    let act;
    if (isSecond) {
      const place = places[event.key];
      act = place && (() => location.assign(place));
    } else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      act = search && (() => search.focus());
    } else if (event.key === "?") {
      act = () => keys.showModal();
    } else {
      const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      act = found && (() => found.click());
    }
    if (!act) return;
    event.preventDefault();
    act();
  });

  // ---- a page that renews itself says when it could not; the next one that could takes it back

  const tellStale = () => document.querySelector(".stale")?.removeAttribute("hidden");
  document.addEventListener("htmx:error", tellStale);
  document.addEventListener("htmx:response:error", tellStale);
})();
