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
    b: "/console/runbooks",
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
  keys.querySelector("button").addEventListener("click", () => keys.close());
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

  // ---- a live page asks for itself when the daemon says that there is news
  //
  // Hidden pages have no stream: a browser has few connections to one daemon.

  const live = document.querySelector("[data-live]");
  let source = null;
  let isPaused = false;

  function follow() {
    const isWanted = !isPaused && !document.hidden;
    if (isWanted && !source) {
      source = new EventSource(live.dataset.live);
      source.addEventListener("news", () => htmx.trigger(live, "news"));
      source.addEventListener("error", showState);
      source.addEventListener("open", showState);
    } else if (!isWanted && source) {
      source.close();
      source = null;
    }
    showState();
  }

  // What the daemon sent knows nothing of the stream, so it is said anew after each renewal.
  function showState() {
    for (const each of live.querySelectorAll("[data-script]")) each.hidden = false;
    const state = live.querySelector("[data-live-state]");
    const isOpen = source?.readyState === EventSource.OPEN;
    state.textContent = isPaused ? "paused" : isOpen ? "live" : "connecting";
    state.className = isOpen ? "badge well" : "badge warn";
    live.querySelector("[data-live-pause]").textContent = isPaused ? "Go on" : "Pause";
  }

  if (live) {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !isPaused) htmx.trigger(live, "news");
      follow();
    });
    document.addEventListener("htmx:after:swap", showState);
    document.addEventListener("click", (event) => {
      if (!event.target.closest("[data-live-pause]")) return;
      isPaused = !isPaused;
      if (!isPaused) htmx.trigger(live, "news");
      follow();
    });
    follow();
  }

  // ---- a curve says its values under the pointer: they are in its path

  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  function size(bytes) {
    const unit = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
    return `${(bytes / 1024 ** unit).toFixed(unit ? 1 : 0)} ${units[unit]}`;
  }

  const short = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : `${+value.toPrecision(3)}`);
  const words = {
    count: short,
    rate: (value) => `${short(value)}/s`,
    bytes: size,
    "byte-rate": (value) => `${size(value)}/s`,
    seconds: (value) => (value >= 1 ? `${short(value)} s` : `${short(value * 1000)} ms`),
  };

  // [x, y] of a path of M, L, H and V; a step has its value from its x on.
  function points(path) {
    const found = [];
    for (const [, verb, text] of path.matchAll(/([MLHV])([-\d. ]+)/g)) {
      const [x, y] = text.trim().split(" ").map(Number);
      const last = found.at(-1);
      if (verb === "V") last[1] = x;
      else found.push(verb === "H" ? [x, last[1]] : [x, y]);
    }
    return found;
  }

  function readOut(svg, share) {
    const { plot, most, from, to } = svg.dataset;
    const x = share * 600;
    const at = new Date(+from + share * (to - from)).toISOString();
    const values = [...svg.querySelectorAll("[data-name]")].map((line) => {
      const nearest = points(line.getAttribute("d")).reduce(
        (best, each) => (Math.abs(each[0] - x) < Math.abs(best[0] - x) ? each : best),
        [-1e9, 0],
      );
      const isNear = Math.abs(nearest[0] - x) < 20 || plot === "bytes";
      const value = isNear ? words[plot]((1 - nearest[1] / 100) * most) : "none";
      return `${line.dataset.name} ${value}`;
    });
    const time = to - from > 86400000 ? at.slice(0, 10) : at.slice(11, 19);
    return `${time} UTC: ${values.join(", ")}`;
  }

  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.("[data-plot]");
    for (const each of document.querySelectorAll(".readout")) {
      if (each.parentNode !== svg?.parentNode) each.remove();
    }
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    let shown = svg.parentNode.querySelector(".readout");
    if (!shown) {
      shown = document.createElement("p");
      shown.className = "readout";
      svg.parentNode.append(shown);
    }
    shown.textContent = readOut(svg, share);
  });

  // ---- a page that renews itself says when it could not; the next one that could takes it back

  const tellStale = () => document.querySelector(".stale")?.removeAttribute("hidden");
  document.addEventListener("htmx:error", tellStale);
  document.addEventListener("htmx:response:error", tellStale);
})();
