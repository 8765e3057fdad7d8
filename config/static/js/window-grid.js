// <window-grid data-form="id" data-starts="2026-11-28T00:00 …">: choosing free slots of one or more
// GPUs fills the fields gpu, starts_at and ends_at of a plain form, which is what is sent.
// Mouse or pen: drag. Touch: tap the first slot, then the last. Keys: arrows move, Shift+arrows
// extend over time and GPUs, Enter takes the choice to the form, Escape drops it.

class WindowGrid extends HTMLElement {
  connectedCallback() {
    this.table = this.querySelector("table.slots");
    if (!this.table) return;
    this.starts = this.dataset.starts.split(" ");
    this.said = this.querySelector("[data-said]");
    this.table.setAttribute("role", "grid");
    this.table.setAttribute("aria-multiselectable", "true");
    this.rows = [...this.table.tBodies[0].rows];
    // Row and column of each free slot, and the cell at each place: null where it is taken.
    this.place = new Map();
    this.cells = this.rows.map((row, y) => {
      const line = [];
      for (const cell of [...row.cells].slice(1)) {
        const free = cell.classList.contains("free");
        if (free) {
          cell.tabIndex = -1;
          this.place.set(cell, { x: line.length, y });
        }
        for (let n = 0; n < cell.colSpan; n += 1) line.push(free ? cell : null);
      }
      return line;
    });
    const first = this.table.querySelector("td.free");
    if (first) first.tabIndex = 0;
    this.chosen = null;
    this.table.addEventListener("pointerdown", (event) => this.press(event));
    this.table.addEventListener("pointermove", (event) => this.drag(event));
    this.table.addEventListener("pointerup", () => this.drop());
    this.table.addEventListener("pointercancel", () => (this.dragging = false));
    this.table.addEventListener("click", (event) => this.tap(event));
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.table.addEventListener("focusin", (event) => this.arrive(event));
  }

  at(target) {
    return this.place.get(target?.closest?.("td.free"));
  }

  press(event) {
    const spot = this.at(event.target);
    this.touched = event.pointerType === "touch";
    if (!spot || this.touched || event.button !== 0) return;
    event.preventDefault();
    this.cells[spot.y][spot.x].focus({ preventScroll: true });
    this.table.setPointerCapture(event.pointerId);
    this.dragging = true;
    if (!event.shiftKey || !this.anchor) this.anchor = spot;
    this.choose(spot);
  }

  drag(event) {
    if (!this.dragging) return;
    const spot = this.at(document.elementFromPoint(event.clientX, event.clientY));
    if (spot) this.choose(spot);
  }

  drop() {
    if (!this.dragging) return;
    this.dragging = false;
    this.fill();
  }

  tap(event) {
    const spot = this.at(event.target);
    if (!spot || !this.touched) return;
    const second = Boolean(this.anchor) && this.waiting;
    if (!second) this.anchor = spot;
    this.waiting = !second;
    this.choose(spot);
    if (second) this.fill();
    else this.say(`${this.describe()} Tap the last slot.`);
  }

  key(event) {
    const spot = this.at(event.target);
    if (!spot) return;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (dx || dy) {
      event.preventDefault();
      if (!event.shiftKey) return this.go(spot, dx, dy);
      const next = this.cells[spot.y + dy]?.[spot.x + dx];
      if (!next) return;
      if (!this.chosen || !this.anchor || !this.holds(spot)) this.anchor = spot;
      this.choose(this.place.get(next));
      next.focus();
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      const line = this.cells[spot.y].filter(Boolean);
      (event.key === "Home" ? line[0] : line.at(-1)).focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (!this.chosen || !this.holds(spot)) {
        this.anchor = spot;
        this.choose(spot);
      }
      this.fill(true);
    } else if (event.key === "Escape") {
      this.clear();
      this.say("Nothing chosen.");
    }
  }

  /** Focus the next free slot in that direction: past what is taken, or the nearest of the row. */
  go(spot, dx, dy) {
    if (dx) {
      for (let x = spot.x + dx; x >= 0 && x < this.cells[spot.y].length; x += dx) {
        if (this.cells[spot.y][x]) return this.cells[spot.y][x].focus();
      }
      return;
    }
    const line = this.cells[spot.y + dy] ?? [];
    const near = line.map((cell, x) => [cell, Math.abs(x - spot.x)]).filter(([cell]) => cell);
    near.sort(([, one], [, other]) => one - other);
    near[0]?.[0].focus();
  }

  holds({ x, y }) {
    const c = this.chosen;
    return c && x >= c.left && x <= c.right && y >= c.top && y <= c.bottom;
  }

  arrive(event) {
    const spot = this.at(event.target);
    if (!spot) return;
    this.table.querySelectorAll('td[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
    const cell = this.cells[spot.y][spot.x];
    cell.tabIndex = 0;
    cell.setAttribute("aria-label", `${this.name(spot.y)}, free from ${this.clock(spot.x)}`);
  }

  /** Mark the free slots between the anchor and `spot`; what is taken on the way stops them. */
  choose(spot) {
    this.clear();
    const top = Math.min(this.anchor.y, spot.y);
    const bottom = Math.max(this.anchor.y, spot.y);
    const open = (x) => this.cells.slice(top, bottom + 1).every((line) => line[x]);
    const step = spot.x >= this.anchor.x ? 1 : -1;
    let edge = this.anchor.x;
    if (!open(edge)) return this.choose({ x: spot.x, y: this.anchor.y });
    while (edge !== spot.x && open(edge + step)) edge += step;
    this.chosen = { top, bottom, left: Math.min(edge, this.anchor.x), right: Math.max(edge, this.anchor.x) };
    this.each((cell) => {
      cell.classList.add("chosen");
      cell.setAttribute("aria-selected", "true");
    });
    this.say(this.describe());
  }

  each(act) {
    const { top, bottom, left, right } = this.chosen;
    for (let y = top; y <= bottom; y += 1) for (let x = left; x <= right; x += 1) act(this.cells[y][x]);
  }

  clear() {
    if (!this.chosen) return;
    this.each((cell) => {
      cell.classList.remove("chosen");
      cell.removeAttribute("aria-selected");
    });
    this.chosen = null;
  }

  name(y) {
    return this.rows[y].cells[0].firstChild.textContent.trim();
  }

  clock(x) {
    return this.starts[x].slice(11);
  }

  describe() {
    const { top, bottom, left, right } = this.chosen;
    const who = top === bottom ? this.name(top) : `${this.name(top)} to ${this.name(bottom)}`;
    return `${who}: ${this.clock(left)} to ${this.clock(right + 1)}.`;
  }

  say(text) {
    if (this.said) this.said.textContent = text;
  }

  fill(byKey) {
    const form = document.getElementById(this.dataset.form);
    if (!form || !this.chosen) return;
    const { top, bottom, left, right } = this.chosen;
    const gpus = this.rows.slice(top, bottom + 1).map((row) => row.dataset.gpu);
    form.querySelectorAll('[name="gpu"]').forEach((field) => {
      if (field.type === "checkbox") field.checked = gpus.includes(field.value);
      else field.value = gpus[0];
    });
    if (form.elements.schedule) form.elements.schedule.value = "";
    form.elements.starts_at.value = this.starts[left].replace("T", " ");
    form.elements.ends_at.value = this.starts[right + 1].replace("T", " ");
    form.dispatchEvent(new Event("change", { bubbles: true }));
    this.say(`${this.describe()} The form below is filled in.`);
    if (!byKey) return;
    const next = form.querySelector("[data-next]");
    next?.focus();
    next?.select();
  }
}

customElements.define("window-grid", WindowGrid);
