// <window-grid data-form="id" data-starts="2026-11-28T00:00 …">: choosing a span of free slots in a
// row fills the fields gpu, starts_at and ends_at of a plain form, which is what is sent.
// Mouse or pen: drag. Touch: tap the first slot, then the last. Keys: arrows move, Shift+arrows
// extend, Enter takes the span to the form, Escape drops it.

class WindowGrid extends HTMLElement {
  connectedCallback() {
    this.table = this.querySelector("table.slots");
    if (!this.table) return;
    this.starts = this.dataset.starts.split(" ");
    this.said = this.querySelector("[data-said]");
    this.table.setAttribute("role", "grid");
    this.slots = new Map();
    this.rows = [...this.table.tBodies[0].rows];
    for (const row of this.rows) {
      let slot = 0;
      for (const cell of [...row.cells].slice(1)) {
        this.slots.set(cell, slot);
        slot += cell.colSpan;
        if (cell.classList.contains("free")) cell.tabIndex = -1;
      }
    }
    const first = this.table.querySelector("td.free");
    if (first) first.tabIndex = 0;
    this.table.addEventListener("pointerdown", (event) => this.press(event));
    this.table.addEventListener("pointermove", (event) => this.drag(event));
    this.table.addEventListener("pointerup", () => this.drop());
    this.table.addEventListener("pointercancel", () => (this.dragging = false));
    this.table.addEventListener("click", (event) => this.tap(event));
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.table.addEventListener("focusin", (event) => this.arrive(event));
  }

  free(target) {
    return target?.closest?.("td.free");
  }

  press(event) {
    const cell = this.free(event.target);
    this.touched = event.pointerType === "touch";
    if (!cell || this.touched || event.button !== 0) return;
    event.preventDefault();
    cell.focus({ preventScroll: true });
    this.table.setPointerCapture(event.pointerId);
    this.dragging = true;
    if (!(event.shiftKey && this.anchor?.parentElement === cell.parentElement)) this.anchor = cell;
    this.choose(cell);
  }

  drag(event) {
    if (!this.dragging) return;
    const box = this.anchor.getBoundingClientRect();
    const cell = this.free(document.elementFromPoint(event.clientX, box.top + box.height / 2));
    if (cell?.parentElement === this.anchor.parentElement) this.choose(cell);
  }

  drop() {
    if (!this.dragging) return;
    this.dragging = false;
    this.fill();
  }

  tap(event) {
    const cell = this.free(event.target);
    if (!cell || !this.touched) return;
    const second = this.anchor && !this.taken && this.anchor.parentElement === cell.parentElement;
    if (!second) this.anchor = cell;
    this.taken = second;
    this.choose(cell);
    if (second) this.fill(); else this.say(`${this.describe()} Tap the last slot.`);
  }

  key(event) {
    const cell = this.free(event.target);
    if (!cell) return;
    const row = this.rows.indexOf(cell.parentElement);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const climb = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    let next = null;
    if (step) next = this.beside(cell, step, event.shiftKey);
    else if (climb && !event.shiftKey) next = this.nearest(row + climb, this.slots.get(cell));
    else if (event.key === "Home" || event.key === "End") {
      const all = [...cell.parentElement.querySelectorAll("td.free")];
      next = event.key === "Home" ? all[0] : all.at(-1);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (!this.chosen?.includes(cell)) { this.anchor = cell; this.choose(cell); }
      this.fill(true);
      return;
    } else if (event.key === "Escape") {
      this.clear();
      return;
    } else return;
    event.preventDefault();
    if (!next) return;
    if (event.shiftKey && step) {
      if (this.anchor?.parentElement !== cell.parentElement || !this.chosen?.length) this.anchor = cell;
      this.choose(next);
    }
    next.focus();
  }

  beside(cell, step, mustTouch) {
    let next = cell;
    do next = step > 0 ? next.nextElementSibling : next.previousElementSibling;
    while (next && !next.matches("td.free") && !mustTouch);
    return next?.matches("td.free") ? next : null;
  }

  nearest(row, slot) {
    const cells = [...(this.rows[row]?.querySelectorAll("td.free") ?? [])];
    return cells.reduce((best, cell) => (!best || Math.abs(this.slots.get(cell) - slot) < Math.abs(this.slots.get(best) - slot) ? cell : best), null);
  }

  arrive(event) {
    const cell = this.free(event.target);
    if (!cell) return;
    this.table.querySelectorAll('td[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
    cell.tabIndex = 0;
    cell.setAttribute("aria-label", `${cell.parentElement.dataset.gpu}, free from ${this.clock(this.slots.get(cell))}`);
  }

  /** Mark the free cells from the anchor to `cell`; a taken cell between them stops the span. */
  choose(cell) {
    this.clear(true);
    const step = this.slots.get(cell) >= this.slots.get(this.anchor) ? 1 : -1;
    this.chosen = [this.anchor];
    for (let at = this.anchor; at !== cell; ) {
      at = this.beside(at, step, true);
      if (!at) break;
      this.chosen.push(at);
    }
    this.chosen.sort((one, other) => this.slots.get(one) - this.slots.get(other));
    this.chosen.forEach((one) => { one.classList.add("chosen"); one.setAttribute("aria-selected", "true"); });
    this.say(this.describe());
  }

  clear(quiet) {
    this.table.querySelectorAll("td.chosen").forEach((one) => { one.classList.remove("chosen"); one.removeAttribute("aria-selected"); });
    this.chosen = [];
    if (!quiet) this.say("Nothing chosen.");
  }

  clock(slot) {
    return this.starts[slot].slice(11);
  }

  describe() {
    const [first, last] = [this.chosen[0], this.chosen.at(-1)];
    return `${first.parentElement.dataset.gpu}: ${this.clock(this.slots.get(first))} to ${this.clock(this.slots.get(last) + 1)}.`;
  }

  say(text) {
    if (this.said) this.said.textContent = text;
  }

  fill(byKey) {
    const form = document.getElementById(this.dataset.form);
    if (!form || !this.chosen?.length) return;
    const values = {
      gpu: this.chosen[0].parentElement.dataset.gpu,
      starts_at: this.starts[this.slots.get(this.chosen[0])],
      ends_at: this.starts[this.slots.get(this.chosen.at(-1)) + 1],
    };
    for (const [name, value] of Object.entries(values)) {
      const field = form.elements[name];
      if (field) field.value = value;
    }
    form.dispatchEvent(new Event("input", { bubbles: true }));
    form.dispatchEvent(new Event("change", { bubbles: true }));
    this.say(`${this.describe()} The form below is filled in.`);
    if (byKey) form.querySelector("[data-next]")?.focus();
  }
}

customElements.define("window-grid", WindowGrid);
