/* The dashboard: draws its charts, and fetches its panels and numbers anew while somebody looks. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const page = document.querySelector(".awa-dashboard");
  if (!page) return;

  // --- Charts -------------------------------------------------------------------------------------

  const HEIGHT = 200;
  const LEAST_MINUTES = 15; // shown of the hour, however new the queue is
  // The marks of a scale of durations, which is logarithmic: it has no zero.
  const MARKS = [
    [0.001, "1 ms"], [0.01, "10 ms"], [0.1, "100 ms"], [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"],
    [3600, "1 h"], [36_000, "10 h"], [360_000, "4 d"],
  ];
  const WHOLE_STEPS = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power));
  const charts = new Map(); // name -> { figure, spec, plot }

  const language = document.documentElement.lang || "en";
  // A variable may be made of others, and of what the page's scheme is: an element tells its colour.
  const probe = page.appendChild(Object.assign(document.createElement("span"), { hidden: true, className: "awa-probe" }));

  function color(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  function duration(seconds) {
    if (seconds == null) return "-";
    if (seconds < 0.9995) return `${+(seconds * 1000).toPrecision(2)} ms`;
    if (seconds < 9.95) return `${(+seconds.toFixed(1)).toLocaleString(language)} s`;
    if (seconds < 120) return `${Math.floor(seconds)} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  const count = (number) => (number == null ? "-" : number.toLocaleString(language));

  /* Bars stand on those of the series after them: the first, whose bar is drawn first, is the whole. */
  function columns(spec) {
    const values = spec.series.map((series) => series.values);
    if (spec.kind === "seconds") {
      return [spec.x, ...values.map((each) => each.map((v) => (v == null ? null : Math.max(v, MARKS[0][0]))))];
    }
    const stacked = values.map((_, place) =>
      spec.x.map((_, at) => values.slice(place).reduce((sum, each) => sum + each[at], 0)),
    );
    return [spec.x, ...stacked];
  }

  /* Whole steps of MARKS round the values, two at least. */
  function marksRound(least, most) {
    let first = Math.max(MARKS.findLastIndex(([seconds]) => seconds <= least), 0);
    let last = MARKS.findIndex(([seconds]) => seconds >= most);
    if (last < 0) last = MARKS.length - 1;
    if (last - first < 2) first = Math.max(last - 2, 0);
    return MARKS.slice(first, Math.max(last, first + 2) + 1);
  }

  /* The places of values that no line leads to. */
  function lonely(values) {
    return [...values.keys()].filter(
      (at) => values[at] != null && values[at - 1] == null && values[at + 1] == null,
    );
  }

  function firstShown(spec) {
    const at = spec.x.findIndex((_, place) => spec.series.some((series) => series.values[place]));
    return spec.x[Math.max(Math.min(at < 0 ? spec.x.length : at, spec.x.length - LEAST_MINUTES), 0)];
  }

  function options(state, width) {
    const isBars = state.spec.kind === "bars";
    const write = isBars ? count : duration;
    const axis = {
      stroke: color("--body-quiet-color"),
      font: "11px " + getComputedStyle(document.body).fontFamily,
      grid: { stroke: color("--hairline-color"), width: 1 },
      ticks: { stroke: color("--hairline-color"), width: 1, size: 4 },
    };
    const minutes = () => {
      const first = firstShown(state.spec);
      const shown = (state.spec.x.at(-1) - first) / 60;
      const step = shown <= 20 ? 5 : shown <= 40 || width >= 360 ? 10 : 20;
      return state.spec.x.filter((x, at) => x >= first && Number(state.spec.labels[at].slice(3)) % step === 0);
    };
    const label = (x) => state.spec.labels[state.spec.x.indexOf(x)] ?? "";
    return {
      width,
      height: HEIGHT,
      padding: [10, 18, 0, 0], // right: half of what is written below the last minute
      cursor: { y: false, drag: { x: false, y: false }, points: { show: !isBars } },
      legend: { markers: { width: 0, fill: (plot, place) => plot.series[place].stroke() } },
      scales: {
        x: { time: false, range: () => [firstShown(state.spec) - 45, state.spec.x.at(-1) + 45] },
        y: isBars
          ? { range: (plot, least, most) => [0, Math.max(most * 1.08, 4)] }
          : {
              distr: 3,
              range: (plot, least, most) => {
                const marks = marksRound(least ?? 1, most ?? 1);
                return [marks[0][0], marks.at(-1)[0]];
              },
            },
      },
      axes: [
        { ...axis, splits: minutes, values: (plot, splits) => splits.map(label), size: 28, gap: 4 },
        {
          ...axis,
          size: 52,
          gap: 4,
          ...(isBars
            ? { incrs: WHOLE_STEPS, values: (plot, splits) => splits.map(count) }
            : {
                splits: (plot, place, least, most) => marksRound(least, most).map(([seconds]) => seconds),
                values: (plot, splits) => splits.map((split) => MARKS.find(([seconds]) => seconds === split)[1]),
                filter: (plot, splits) => splits,
              }),
        },
      ],
      series: [
        { label: "", value: (plot, value, place, at) => (at == null ? "" : state.spec.labels[at]) },
        ...state.spec.series.map((series, at) => ({
          label: series.label,
          stroke: () => color(`--awa-${series.tone}`),
          width: isBars ? 0 : 1.5,
          fill: isBars ? () => color(`--awa-${series.tone}`) : undefined,
          paths: isBars ? uPlot.paths.bars({ size: [0.75, 40], align: 0 }) : undefined,
          points: {
            show: !isBars,
            size: 4,
            width: 0,
            fill: () => color(`--awa-${series.tone}`),
            filter: (plot, place) => lonely(plot.data[place]),
          },
          value: (plot, value, place, idx) => (idx == null ? "-" : write(state.spec.series[at].values[idx])),
        })),
      ],
    };
  }

  /* Without a pointer on the chart its legend tells the last whole minute, or the newest measured one. */
  function tellNewest(state) {
    const { spec, plot } = state;
    if (!plot || plot.cursor.left >= 0) return;
    let at = spec.x.length - 2;
    if (spec.kind === "seconds") {
      at = spec.series[0].values.findLastIndex((value) => value != null);
    }
    plot.setLegend({ idx: Math.max(at, 0) });
  }

  function draw(state) {
    const holder = state.figure.querySelector(".awa-chart");
    const empty = state.figure.querySelector(".awa-empty");
    holder.hidden = state.spec.is_empty;
    empty.hidden = !state.spec.is_empty;
    holder.setAttribute("aria-label", state.spec.summary);
    empty.textContent = state.spec.summary;
    if (state.spec.is_empty) {
      state.plot?.destroy();
      state.plot = null;
      return;
    }
    if (state.plot) {
      state.plot.setData(columns(state.spec));
    } else {
      state.plot = new uPlot(options(state, holder.clientWidth), columns(state.spec), holder);
      state.plot.over.addEventListener("mouseleave", () => setTimeout(tellNewest, 0, state));
    }
    setTimeout(tellNewest, 0, state); // after the plot has told what is under the pointer
  }

  function drawAnew() {
    for (const state of charts.values()) {
      state.plot?.destroy();
      state.plot = null;
      draw(state);
    }
  }

  function showCharts(specs) {
    for (const figure of page.querySelectorAll("[data-chart]")) {
      const name = figure.dataset.chart;
      if (!charts.has(name)) charts.set(name, { figure, plot: null });
      const state = charts.get(name);
      state.spec = specs[name];
      draw(state);
    }
  }

  new ResizeObserver(() => {
    for (const state of charts.values()) {
      const width = state.figure.querySelector(".awa-chart").clientWidth;
      if (state.plot && width && width !== state.plot.width) {
        state.plot.destroy();
        state.plot = null;
        draw(state);
      }
    }
  }).observe(page);
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", drawAnew);
  }
  new MutationObserver(drawAnew).observe(document.documentElement, {
    attributeFilter: ["data-theme", "data-bs-theme", "class"],
  });

  // --- Panels -------------------------------------------------------------------------------------

  /* What the reader has opened, scrolled or focused stays so; what is being selected stays as it is. */
  function replace(panel, html) {
    if (awaLive.isSelected(panel)) return false;
    const restore = awaLive.keep(panel);
    panel.innerHTML = html;
    restore(panel);
    return true;
  }

  const shown = new Map();

  function showPanels(panels) {
    for (const panel of page.querySelectorAll("[data-panel]")) {
      const html = panels[panel.dataset.panel];
      if (html !== undefined && shown.get(panel) !== html && replace(panel, html)) shown.set(panel, html);
    }
    sayNew();
  }

  const said = document.getElementById("awa-said");
  let alerts = listed();

  /* What needs attention, by its words: that a number in it is another one is no news. */
  function listed() {
    const texts = [...page.querySelectorAll(".awa-alerts li")].map((each) => each.textContent.trim());
    return new Map(texts.map((text) => [text.replace(/[\d.,]+/g, ""), text]));
  }

  /* To who listens: the rest of the page changes every few seconds, and is read when he wants. */
  function sayNew() {
    const now = listed();
    const fresh = [...now].filter(([words]) => !alerts.has(words)).map(([, text]) => text);
    if (fresh.length) said.textContent = fresh.join(" ");
    alerts = now;
  }

  // --- Refreshing ---------------------------------------------------------------------------------

  const every = Number(page.dataset.refresh) * 1000;
  const SLOWEST = 60_000;
  const trouble = document.getElementById("awa-trouble");
  const button = document.getElementById("awa-refresh");
  let timer;
  let failures = 0;
  let isPaused = false;

  function say(text) {
    if (trouble.textContent !== text) trouble.textContent = text;
  }

  function schedule() {
    clearTimeout(timer);
    if (!isPaused && !document.hidden) timer = setTimeout(refresh, Math.min(every * 2 ** failures, SLOWEST));
  }

  async function refresh() {
    clearTimeout(timer);
    try {
      const answer = await fetch(page.dataset.url, { redirect: "manual", signal: AbortSignal.timeout(15_000) });
      if (answer.type === "opaqueredirect" || answer.status === 403) {
        isPaused = true;
        button.hidden = true;
        say(page.dataset.signedOut);
        return;
      }
      if (!answer.ok) throw new Error(answer.statusText);
      const { panels, charts: specs } = await answer.json();
      showPanels(panels);
      showCharts(specs);
      failures = 0;
      say("");
    } catch {
      failures += 1;
      say(page.dataset.unreachable);
    }
    schedule();
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? page.dataset.resume : page.dataset.pause;
    if (isPaused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!isPaused) refresh();
  });

  showCharts(JSON.parse(document.getElementById("awa-charts").textContent));
  schedule();
});
