// Applies the updates of the server, counts down, draws the series. It asks this server alone, and only by GET.
"use strict";
(() => {
  const SILENCE_MS = 13000; // beats come every 5 s
  const RETRY_MS = 1500;
  const byId = (id) => document.getElementById(id);
  let source = null, lost = false, heard = Date.now(), refreshing = 0, opened = false;

  function setLost(now) {
    if (now === lost) return;
    lost = now;
    document.body.dataset.link = now ? "lost" : "live";
    const notice = byId("lost");
    if (notice) notice.hidden = !now;
    if (!now) reload();
  }

  const PARTS = ["health-notices", "recording", "figures", "main", "updated"];

  function reload(parts = PARTS) {
    fetch(location.href, { headers: { Accept: "text/html" } }).then(async (answer) => {
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of parts) {
        const mine = byId(id), theirs = fresh.getElementById(id);
        if (!mine || !theirs || (id === "recording" && mine.contains(document.activeElement))) continue;
        mine.replaceWith(theirs);
        htmx.process(theirs);
        if (id === "recording") slide();
      }
      document.body.dataset.stream = fresh.body.dataset.stream;
      document.body.dataset.following = fresh.body.dataset.following || "";
      if (parts === PARTS) begin();
      else if (!live()) listen();
    }).catch(() => setLost(true));
  }

  const live = () => document.body.dataset.stream !== ""; // a recording that is whole has no stream

  function listen() {
    if (source) source.close();
    if (!live()) return;
    source = new EventSource(document.body.dataset.stream);
    const alive = () => { heard = Date.now(); setLost(false); };
    source.addEventListener("open", () => { opened = true; document.body.dataset.stream_open = "1"; alive(); });
    source.addEventListener("beat", alive);
    source.addEventListener("update", (event) => { alive(); apply(JSON.parse(event.data)); });
    source.addEventListener("changed", () => { alive(); refresh(); });
    // A simulation went on: a page that follows it shows the new end, another one only that the slider reaches further.
    source.addEventListener("grown", () => { alive(); reload(document.body.dataset.following ? PARTS : ["recording"]); });
    source.addEventListener("reload", () => { alive(); reload(); });
    source.addEventListener("error", () => {
      setLost(true);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
    });
  }

  function apply(update) {
    const template = document.createElement("template");
    template.innerHTML = update.html || "";
    let strangers = false;
    for (const fresh of [...template.content.children]) {
      const old = byId(fresh.id);
      const focused = old && old.contains(document.activeElement);
      if (fresh.classList.contains("n")) {
        const into = byId("blocks:" + fresh.dataset.g);
        if (!into) { strangers = true; continue; }
        if (old && old.parentElement === into) old.replaceWith(fresh);
        else {
          if (old) old.remove();
          else fresh.classList.add("fresh");
          into.append(fresh);
        }
      } else if (old) old.replaceWith(fresh);
      if (focused) (byId(fresh.id) || document.body).focus();
    }
    for (const id of update.gone || []) {
      const element = byId(id), section = element && element.closest(".group");
      if (!element) continue;
      element.remove();
      if (section && !section.querySelector(".n")) section.remove();
    }
    if (update.time && byId("updated")) {
      byId("updated").dateTime = update.time;
      byId("updated").textContent = update.time.slice(11, 19);
    }
    document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
    if (strangers) reload();
    countdown();
  }

  function refresh() {
    const wait = Math.max(0, 1000 - (Date.now() - refreshing));
    refreshing = Date.now() + wait;
    clearTimeout(refresh.timer);
    refresh.timer = setTimeout(() => {
      if (byId("decisions")) { draw(); htmx.ajax("GET", location.href, { target: "#decisions", select: "#decisions", swap: "outerHTML" }); }
      else if (byId("content")) htmx.trigger("#content", "refresh");
    }, wait);
  }

  // Details that are open stay open when the page around them is drawn again.
  let open = [];
  document.addEventListener("htmx:beforeSwap", () => {
    open = [...document.querySelectorAll("#content details[open] > summary")].map((summary) => summary.textContent);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.id === "content" && byId("plots")) draw();
    for (const summary of document.querySelectorAll("#content details > summary"))
      if (open.includes(summary.textContent)) summary.parentElement.open = true;
  });

  function span(seconds) {
    if (seconds < 60) return Math.max(0, Math.round(seconds)) + "s";
    if (seconds < 3600) return Math.floor(seconds / 60) + "m " + Math.floor(seconds % 60) + "s";
    return Math.floor(seconds / 3600) + "h " + Math.floor((seconds % 3600) / 60) + "m";
  }

  function countdown() {
    const base = byId("updated");
    const skew = base ? Date.parse(base.dateTime) - heard : 0; // a lab's time is not ours
    for (const element of document.querySelectorAll("[data-until]")) {
      const left = (Date.parse(element.dataset.until) - Date.now() - skew) / 1000;
      element.textContent = left > 0 ? `${element.dataset.most} ${span(left)}` : element.dataset.late;
    }
    for (const element of document.querySelectorAll("[data-since]"))
      element.textContent = span((Date.now() + skew - Date.parse(element.dataset.since)) / 1000);
  }

  // What a block shows, in words, beside the pointer or the focus.
  function tip(block) {
    let element = byId("tip");
    if (!block) { if (element) element.remove(); return; }
    if (!element) {
      element = document.createElement("div");
      element.id = "tip";
      element.setAttribute("role", "tooltip");
      document.body.append(element);
    }
    element.replaceChildren(...block.firstElementChild.textContent.split("; ").map((fact) => {
      const line = document.createElement("div");
      line.textContent = fact;
      return line;
    }));
    const box = block.getBoundingClientRect(), own = element.getBoundingClientRect();
    element.style.left = Math.max(8, Math.min(box.left, innerWidth - own.width - 12)) + "px";
    element.style.top = (box.bottom + own.height + 10 > innerHeight ? box.top - own.height - 6 : box.bottom + 6) + "px";
  }
  for (const kind of ["mouseover", "focusin"])
    document.addEventListener(kind, (event) => tip(event.target.closest ? event.target.closest("a.n") : null));
  document.addEventListener("scroll", () => tip(null), { passive: true });

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); byId("search").focus(); }
    if (event.key === "Escape") { tip(null); if (byId("found")) byId("found").replaceChildren(); }
    const block = event.target.closest && event.target.closest("a.n");
    if (!block || !event.key.startsWith("Arrow")) return;
    const all = [...document.querySelectorAll("a.n")], at = all.indexOf(block);
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let next = across ? all[at + across] : null;
    if (!across) {
      const down = event.key === "ArrowDown", from = block.getBoundingClientRect();
      const rows = (down ? all.slice(at + 1) : all.slice(0, at).reverse())
        .map((other) => [other, other.getBoundingClientRect()])
        .filter(([, box]) => (down ? box.top > from.top + 4 : box.bottom < from.bottom - 4));
      if (rows.length) {
        const edge = rows[0][1].bottom;
        next = rows.filter(([, box]) => Math.abs(box.bottom - edge) < 4)
          .sort((a, b) => Math.abs(a[1].left - from.left) - Math.abs(b[1].left - from.left))[0][0];
      }
    }
    if (next) { event.preventDefault(); next.focus(); }
  });

  function theme() {
    const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    document.cookie = "dovetail-theme=" + next + ";path=/;samesite=lax;max-age=31536000";
    draw();
  }

  // Times of an axis, in UTC as everywhere on the page.
  function clock(at, step) {
    const said = new Date(at * 1000).toISOString();
    return step >= 86400 ? said.slice(5, 10) : step >= 60 ? said.slice(11, 16) : said.slice(11, 19);
  }

  // Series over time.
  let plots = [];
  async function draw() {
    const holder = byId("plots");
    if (!holder || !window.uPlot) return;
    const answer = await fetch(holder.dataset.chart);
    if (!answer.ok) { holder.dataset.failed = String(answer.status); return; }
    const chart = await answer.json(), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    for (const plot of plots) plot.destroy();
    const first = chart.time[0], last = chart.time[chart.time.length - 1];
    const marks = chart.marks.filter((mark) => mark.time >= first - 1 && mark.time <= last + 1);
    const said = (name, value, short) => value === null || value === undefined ? document.body.dataset.unknown
      : name === "cost" ? "$" + (short ? String(Number(value.toPrecision(3))) : value.toFixed(4)) : String(value);
    const say = (at, mark) => {
      const line = byId("hover");
      if (!line) return;
      if (at === null || at === undefined) { line.replaceChildren(line.dataset.hint || ""); return; }
      const values = [...holder.querySelectorAll("[data-plot]")].map((element) =>
        element.dataset.label + " " + [element.dataset.plot, element.dataset.against].filter((series) => series && chart[series])
          .map((series) => said(series, chart[series][at])).join(" / "));
      const clock = document.createElement("b"), what = document.createElement("div");
      clock.textContent = new Date(chart.time[at] * 1000).toISOString().slice(11, 19) + " UTC";
      if (mark) what.textContent = mark.id + "  " + mark.kind + ": " + mark.summary;
      line.replaceChildren(clock, "  " + values.join(" · "), what);
    };
    plots = [...holder.querySelectorAll("[data-plot]")].map((element) => {
      const name = element.dataset.plot;
      const axis = { stroke: colour("--soft"), font: "11px system-ui, sans-serif",
        grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      const whole = element.dataset.whole === "1";
      const names = [name, element.dataset.against].filter((series) => series && chart[series]);
      const near = (plot) => {
        const left = plot.cursor.left;
        let best = null, distance = 9;
        for (const mark of marks) {
          const away = Math.abs(plot.valToPos(mark.time, "x") - left);
          if (away < distance) { best = mark; distance = away; }
        }
        return best;
      };
      const plot = new uPlot({
        width: element.clientWidth || 600, height: 170, legend: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { sync: { key: "time" }, y: false },
        scales: { x: { time: true }, y: { range: (self, low, high) => [0, high === null || high <= 0 ? 1 : high * 1.1] } },
        axes: [{ ...axis, size: 30, values: (self, splits, index, space, step) => splits.map((at) => clock(at, step)) },
          { ...axis, size: 54, ...(whole ? { incrs: [1, 2, 5].flatMap((digit) => [...Array(7).keys()].map((power) => digit * 10 ** power)).sort((a, b) => a - b) } : {}),
            values: (self, splits) => splits.map((value) => said(name, value, true)) }],
        series: [{}, ...names.map((series, number) => ({ label: series, stroke: colour(number ? "--c5" : "--c0"),
          width: 2, dash: number ? [6, 4] : [], spanGaps: false, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))],
        hooks: {
          draw: [(self) => {
            const { ctx, bbox } = self;
            ctx.save();
            ctx.strokeStyle = colour("--c1");
            ctx.globalAlpha = 0.7;
            for (const mark of marks) {
              const x = Math.round(self.valToPos(mark.time, "x", true));
              ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
            }
            if (chart.instant !== null) {
              const x = Math.round(self.valToPos(chart.instant, "x", true));
              ctx.strokeStyle = colour("--ink"); ctx.globalAlpha = 1; ctx.lineWidth = 3;
              ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
            }
            ctx.restore();
          }],
          setCursor: [(self) => say(self.cursor.idx, near(self))],
        },
      }, [chart.time, ...names.map((series) => chart[series])], element);
      plot.over.addEventListener("click", () => { const mark = near(plot); if (mark) location.href = mark.href; });
      return plot;
    });
    holder.dataset.drawn = String(chart.time.length);
  }

  // The slider of a recording: it says its time while it moves, and leads there when it rests.
  function slide() {
    const slider = byId("step"), said = byId("instant");
    if (!slider) return;
    const start = Date.parse(slider.dataset.start), end = Date.parse(slider.dataset.end);
    if (sessionStorage.getItem("slid")) { sessionStorage.removeItem("slid"); slider.focus({ preventScroll: true }); }
    let timer = 0;
    slider.addEventListener("input", () => {
      const instant = new Date(start + (end - start) * slider.value / slider.max);
      said.textContent = instant.toISOString().slice(0, 19).replace("T", " ") + " UTC";
      slider.setAttribute("aria-valuetext", said.textContent);
      clearTimeout(timer);
    });
    slider.addEventListener("change", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { sessionStorage.setItem("slid", "1"); slider.form.requestSubmit(); }, 400);
    });
  }

  function begin() {
    countdown();
    draw();
    listen();
  }

  document.addEventListener("DOMContentLoaded", () => {
    byId("theme").addEventListener("click", theme);
    slide();
    if (!live()) { begin(); return; }
    setInterval(countdown, 1000);
    setInterval(() => { if (live() && Date.now() - heard > SILENCE_MS) { setLost(true); if (source.readyState !== EventSource.CONNECTING) listen(); } }, 1000);
    addEventListener("offline", () => setLost(true));
    begin();
  });
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(draw, 200);
  });
})();
