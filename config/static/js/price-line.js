// <price-line data-points="[[unix seconds, price], …]" data-from="…" data-until="…" data-series="…"
// data-unit="…">, drawn by uPlot. A price holds until the next, so the line goes on to the right edge,
// which moves with the clock.
// <price-tick data-series data-t data-p> adds a point wherever it is put into the page.

const POINTS_MAX = 5000;

class PriceLine extends HTMLElement {
  connectedCallback() {
    const points = JSON.parse(this.dataset.points || "[]");
    this.xs = points.map(([t]) => t);
    this.ys = points.map(([, p]) => p);
    this.from = Number(this.dataset.from ?? this.xs[0]);
    this.until = Math.max(Number(this.dataset.until ?? 0), this.xs.at(-1) ?? 0);
    this.box = document.createElement("div");
    this.box.setAttribute("aria-hidden", "true");
    this.append(this.box);
    this.draw();
    this.sizes = new ResizeObserver(() => this.plot.setSize(this.size()));
    this.sizes.observe(this);
    this.redraw = () => this.draw();
    document.addEventListener("themechange", this.redraw);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.redraw);
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    document.removeEventListener("themechange", this.redraw);
    this.scheme?.removeEventListener("change", this.redraw);
    this.plot?.destroy();
    this.box?.remove();
  }

  size() {
    return { width: Math.max(this.clientWidth, 120), height: Math.max(this.clientHeight, 120) };
  }

  draw() {
    this.plot?.destroy();
    const look = getComputedStyle(this);
    const font = `12px ${look.fontFamily}`;
    const axis = {
      stroke: look.outlineColor, font, gap: 8,
      grid: { stroke: look.borderTopColor, width: 1 }, ticks: { show: false },
    };
    const digits = Number(this.dataset.digits ?? 2);
    const finer = (marks) => marks.length > 1 && marks[1] - marks[0] < 10 ** -digits ? digits + 2 : digits;
    const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hour12: false, timeZone: this.dataset.zone || "UTC" });
    const day = new Intl.DateTimeFormat([], { weekday: "short", day: "numeric", timeZone: this.dataset.zone || "UTC" });
    const label = (seconds, step) => (step >= 86400 ? day : clock).format(seconds * 1000);
    this.plot = new uPlot({
      ...this.size(),
      padding: [10, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      scales: { x: { range: () => [this.from, Math.max(this.until, this.from + 60)] }, y: { range: (_, low, high) => { const pad = Math.max((high - low) * 0.15, high * 0.01, 0.001); return [Math.max(0, low - pad), high + pad]; } } },
      series: [{}, {
        stroke: look.color, width: 2, fill: look.backgroundColor,
        points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
      }],
      axes: [
        { ...axis, size: 30, grid: { show: false }, space: 70, values: (_, marks, __, ___, step) => marks.map((mark) => label(mark, step)) },
        { ...axis, size: 56, space: 44, values: (_, marks) => marks.map((mark) => mark.toFixed(finer(marks))) },
      ],
      hooks: { setCursor: [(plot) => this.read(plot, label, digits)] },
    }, this.held(), this.box);
  }

  held() {
    return this.xs.at(-1) < this.until ? [[...this.xs, this.until], [...this.ys, this.ys.at(-1)]] : [this.xs, this.ys];
  }

  read(plot, label, digits) {
    const out = document.getElementById(this.dataset.readout);
    if (!out) return;
    const at = plot.cursor.idx;
    const [xs, ys] = plot.data;
    out.textContent = at == null ? "" : `${label(xs[at], 0)}  ${ys[at].toFixed(digits)} ${this.dataset.unit ?? ""}`;
  }

  add(t, p) {
    if (!Number.isFinite(t) || !Number.isFinite(p) || t < this.xs.at(-1)) return;
    if (t === this.xs.at(-1)) this.ys[this.ys.length - 1] = p; // or the same, told twice
    else {
      this.xs.push(t);
      this.ys.push(p);
    }
    if (this.xs.length > POINTS_MAX) { this.xs.shift(); this.ys.shift(); }
    this.from += Math.max(0, t - this.until);
    this.until = Math.max(this.until, t);
    this.plot.setData(this.held());
  }
}

class PriceTick extends HTMLElement {
  connectedCallback() {
    const { series, t, p } = this.dataset;
    document.querySelectorAll("price-line").forEach((line) => {
      if (line.dataset.series === series) line.add(Number(t), Number(p));
    });
  }
}

customElements.define("price-line", PriceLine);
customElements.define("price-tick", PriceTick);
