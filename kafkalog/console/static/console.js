// What pages do beyond links and forms: arrow keys on the strip, "/" for the search, curves.
// Every page says the same without it.
"use strict";
(() => {
  const moves = { ArrowLeft: -1, ArrowRight: 1 };

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

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("[data-search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });

  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  function size(bytes) {
    const unit = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
    return `${(bytes / 1024 ** unit).toFixed(unit ? 1 : 0)} ${units[unit]}`;
  }

  const powers = [...Array(63).keys()].map((power) => 2 ** power);
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

  // The day where a step is one or a day begins, else the time.
  function tick(seconds, step) {
    const [day, time] = moment(seconds).split(" ");
    return step >= 86400 || time === "00:00" ? day : time;
  }

  const charts = new WeakMap();

  function draw(element) {
    const [moments, sizes] = JSON.parse(element.dataset.curve);
    const curve = [moments.map((ms) => ms / 1000), sizes];
    if (charts.has(element)) {
      charts.get(element).setData(curve);
      return;
    }
    const text = getComputedStyle(element).color;
    const axis = { stroke: text, grid: { stroke: "#8884" } };
    const ticks = (_, moments, __, ___, step) => moments.map((at) => tick(at, step));
    const options = {
      width: element.clientWidth,
      height: 240,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      axes: [
        { ...axis, space: 90, values: ticks },
        { ...axis, size: 80, incrs: powers, values: (_, sizes) => sizes.map(size) },
      ],
      scales: { y: { range: (_, __, most) => [0, most || 1] } },
      series: [
        { label: "UTC", value: (_, at) => (at === null ? "" : moment(at)) },
        {
          label: "Bytes",
          stroke: text,
          paths: uPlot.paths.stepped({ align: 1 }),
          value: (_, bytes) => (bytes === null ? "" : size(bytes)),
        },
      ],
    };
    charts.set(element, new uPlot(options, curve, element));
  }

  const drawAll = () => document.querySelectorAll("[data-curve]").forEach(draw);
  drawAll();
  window.addEventListener("resize", () => {
    document.querySelectorAll("[data-curve]").forEach((element) =>
      charts.get(element)?.setSize({ width: element.clientWidth, height: 240 }));
  });

  // A page that renews itself says when it could not; the next one that could takes it back.
  const tellStale = () => document.querySelector(".stale")?.removeAttribute("hidden");
  document.addEventListener("htmx:after:swap", drawAll);
  document.addEventListener("htmx:error", tellStale);
  document.addEventListener("htmx:response:error", tellStale);
})();
