// The little that pages need beyond htmx: theme, menu, sortable and filterable tables, live rows, charts.
"use strict";
(() => {
  const root = document.documentElement;
  const saved = localStorage.getItem("theme");
  if (saved) root.dataset.theme = saved;

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-action]");
    if (!target) return;
    if (target.dataset.action === "theme") {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      charts();
    } else if (target.dataset.action === "menu") {
      const open = document.querySelector(".side").classList.toggle("open");
      target.setAttribute("aria-expanded", String(open));
    } else if (target.dataset.action === "sort") sort(target);
    else if (target.dataset.action === "detail") detail(target);
    else if (target.dataset.action === "stop-live") stopLive();
    else if (target.dataset.action === "post") {
      // Here and not by htmx, which comes after the page: a button that can be seen can be clicked.
      fetch(target.dataset.to, { method: "POST", body: new URLSearchParams({ csrf: target.dataset.csrf }) });
    }
  });

  // Sorting: numbers by data-value or by what they say, text by the reader's language. A message and its details are one
  // row. What was chosen is kept by the table's id, so that a part of the page that comes again looks as before.
  const chosen = new Map();
  function sort(button) {
    const th = button.closest("th");
    order(th.closest("table"), th.cellIndex, th.getAttribute("aria-sort") !== "ascending");
  }
  function order(table, index, ascending) {
    table.querySelectorAll("thead th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    const th = table.tHead.rows[0].cells[index];
    if (!th) return;
    th.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    chosen.set(table.id, { ...chosen.get(table.id), index, ascending });
    const key = (row) => {
      const cell = row.cells[index];
      if (!cell) return "";
      const raw = cell.dataset.value ?? cell.textContent.trim();
      const number = Number(raw);
      return raw !== "" && !Number.isNaN(number) ? number : raw;
    };
    const keyed = groups(table).map((rows) => [key(rows[0]), rows]);
    keyed.sort(([x], [y]) => {
      if (typeof x === "number" && typeof y === "number") return x - y;
      if (typeof x === "number") return -1;
      if (typeof y === "number") return 1;
      return x.localeCompare(y, undefined, { numeric: true });
    });
    if (!ascending) keyed.reverse();
    table.tBodies[0].append(...keyed.flatMap(([, rows]) => rows));
  }
  function groups(table) {
    const rowGroups = [];
    for (const row of table.tBodies[0].rows) {
      if (row.classList.contains("message-detail") && rowGroups.length) rowGroups.at(-1).push(row);
      else rowGroups.push([row]);
    }
    return rowGroups;
  }

  document.addEventListener("input", (event) => {
    const id = event.target.dataset.filters;
    if (!id) return;
    chosen.set(id, { ...chosen.get(id), text: event.target.value });
    filter(id);
  });
  function filter(id) {
    const table = document.getElementById(id), searched = (chosen.get(id)?.text ?? "").toLowerCase();
    let shown = 0;
    for (const [row, ...details] of groups(table)) {
      row.hidden = ![row, ...details].some((part) => part.textContent.toLowerCase().includes(searched));
      if (row.hidden) for (const detail of details) detail.hidden = true;
      else shown += 1;
      if (row.hidden) row.querySelector("[aria-expanded]")?.setAttribute("aria-expanded", "false");
    }
    const counter = document.getElementById(id + "-shown");
    if (counter) counter.textContent = String(shown);
  }
  function asLeft() {
    for (const [id, { index, ascending, text }] of chosen) {
      const table = document.getElementById(id);
      if (!table) continue;
      if (index !== undefined) order(table, index, ascending);
      const field = document.getElementById(id + "-filter");
      if (field && text) { field.value = text; filter(id); }
    }
  }

  function detail(button) {
    const row = button.closest("tr"), next = row.nextElementSibling;
    if (next && next.classList.contains("message-detail")) {
      next.hidden = !next.hidden;
      button.setAttribute("aria-expanded", String(!next.hidden));
    }
  }

  // Live rows: a tail or a search. The server renders and escapes; rows past the limit leave at the other end.
  let source = null;
  function stopLive() {
    if (source) source.close();
    source = null;
    const state = document.getElementById("live-state");
    if (state && state.dataset.live === "tail") state.textContent = "stopped";
  }
  function live(element) {
    stopLive();
    source = new EventSource(element.dataset.events);
    const body = document.getElementById(element.dataset.rows), limit = Number(element.dataset.limit || 200);
    const prepend = element.dataset.order === "newest";
    source.addEventListener("rows", (event) => {
      body.insertAdjacentHTML(prepend ? "afterbegin" : "beforeend", JSON.parse(event.data).html);
      while (body.rows.length > limit * 2) (prepend ? body.lastElementChild : body.firstElementChild).remove();
      const id = body.closest("table").id;
      if (chosen.get(id)?.text) filter(id);
    });
    source.addEventListener("status", (event) => {
      const status = JSON.parse(event.data);
      for (const [id, text] of Object.entries(status.texts)) {
        const place = document.getElementById(id);
        if (place) place.textContent = text;
      }
      const bar = document.getElementById("live-bar");
      if (bar && status.percent !== undefined) {
        bar.style.width = status.percent + "%";
        bar.parentElement.setAttribute("aria-valuenow", String(Math.round(status.percent)));
      }
      if (status.over) {
        stopLive();
        document.querySelectorAll("[data-while-live]").forEach((button) => { button.disabled = true; });
      }
    });
  }

  // Charts: <div class="chart" data-series='{"x":[...],"lines":[{"label":..,"values":[..]}],"unit":".."}'>
  function charts() {
    if (!window.uPlot) return;
    const style = getComputedStyle(root);
    const ink = style.getPropertyValue("--ink-soft"), line = style.getPropertyValue("--line-soft");
    const colours = [style.getPropertyValue("--accent"), style.getPropertyValue("--good"), style.getPropertyValue("--warn"), style.getPropertyValue("--bad")];
    document.querySelectorAll(".chart[data-series]").forEach((place) => {
      const data = JSON.parse(place.dataset.series);
      place.replaceChildren();
      if (data.x.length < 2) { place.textContent = "Collecting: a line appears after a few seconds."; return; }
      const seconds = data.x[data.x.length - 1] - data.x[0] < 600;
      const clock = (at) => new Date(at * 1000).toISOString().slice(11, seconds ? 19 : 16);
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
      const short = (v) => v >= 1e9 ? (v / 1e9).toFixed(1) + " G" : v >= 1e6 ? (v / 1e6).toFixed(1) + " M" : v >= 1e3 ? (v / 1e3).toFixed(1) + " k" : String(Math.round(v * 10) / 10);
      new uPlot({
        width: place.clientWidth, height: 170, cursor: { y: false },
        legend: { show: data.lines.length > 1 },
        scales: { y: { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [{ ...axis, space: 90, values: (u, values) => values.map(clock) }, { ...axis, size: 58, values: (u, values) => values.map(short) }],
        series: [{}, ...data.lines.map((each, i) => ({ label: each.label, stroke: colours[i % 4], width: 1.5, points: { show: false }, fill: data.lines.length === 1 ? colours[0] + "22" : undefined }))],
      }, [data.x, ...data.lines.map((each) => each.values)], place);
    });
  }

  function ready(scope) {
    const element = scope.querySelector("[data-events]");
    if (element) live(element);
    charts();
  }
  document.addEventListener("DOMContentLoaded", () => ready(document));
  document.addEventListener("htmx:afterSettle", (event) => { asLeft(); ready(event.target); });
  window.addEventListener("pagehide", stopLive);
  window.addEventListener("resize", charts);
})();
