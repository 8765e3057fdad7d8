// <work-log>: one lease's log, live. The page without JavaScript links to the log as a file.
// The server names every event by the offset after it, and EventSource goes on from there by itself.

const SHOWN_CHARACTERS_MAX = 400_000;
const TAIL_BYTES = 131_072;

class WorkLog extends HTMLElement {
  connectedCallback() {
    this.output = this.querySelector("[data-output]");
    this.said = this.querySelector("[data-said]");
    this.pause = this.querySelector("[data-pause]");
    this.streams = [...this.querySelectorAll("[data-stream]")];
    this.held = [];
    this.sticks = true;
    this.output.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.output;
      this.sticks = scrollHeight - scrollTop - clientHeight < 40;
    });
    this.pause.addEventListener("click", () => this.press());
    for (const button of this.streams) {
      button.addEventListener("click", () => this.open(button.dataset.stream));
    }
    this.open(this.streams[0].dataset.stream, true);
  }

  disconnectedCallback() {
    this.source?.close();
  }

  /** Read one stream from near its end; what came before is in the file. */
  open(stream, first = false) {
    this.source?.close();
    for (const button of this.streams) {
      button.setAttribute("aria-pressed", String(button.dataset.stream === stream));
    }
    this.output.replaceChildren();
    this.held = [];
    this.characters = 0;
    this.paused(false);
    this.pause.hidden = false;
    const file = this.querySelector("[data-file]");
    file.href = `${this.dataset.path}/${stream}`;
    this.begin(stream, first);
  }

  async begin(stream, first) {
    const path = `${this.dataset.path}/${stream}`;
    this.stream = stream;
    this.say("Connecting…");
    let start = 0;
    try {
      const answer = await fetch(this.dataset.path, { headers: { Accept: "application/json" } });
      const { data } = await answer.json();
      const known = data?.find((log) => log.stream === stream);
      // Of work that printed to one stream only, that one is shown first.
      const other = first && !known?.size_bytes && data?.find((log) => log.stream !== stream && log.size_bytes > 0);
      if (other && this.stream === stream && this.isConnected) return this.open(other.stream);
      start = Math.max(0, (known?.size_bytes ?? 0) - TAIL_BYTES);
    } catch { /* then from the beginning */ }
    if (this.stream !== stream || !this.isConnected) return;
    if (start > 0) this.add(`[the last ${TAIL_BYTES / 1024} KiB; all of it is in the file]\n`, "note");
    this.source = new EventSource(`${path}?offset=${start}`);
    this.source.addEventListener("open", () => this.say("Live"));
    this.source.addEventListener("error", () => this.say("Reconnecting…"));
    this.source.addEventListener("message", (event) => this.add(JSON.parse(event.data)));
    this.source.addEventListener("dropped", (event) => {
      this.add(`\n[${Number(event.data).toLocaleString("en")} bytes dropped here]\n`, "note");
    });
    this.source.addEventListener("end", (event) => {
      this.source.close();
      this.pause.hidden = this.pause.getAttribute("aria-pressed") !== "true";
      const { size, complete } = JSON.parse(event.data);
      if (!complete) this.say(size ? "Ended; the host has not said that this is all" : "Nothing was printed");
      else this.say(size ? "Complete" : "Complete: nothing was printed");
    });
  }

  press() {
    const on = this.pause.getAttribute("aria-pressed") !== "true";
    this.paused(on);
    if (on) return;
    for (const [text, kind] of this.held) this.write(text, kind);
    this.held = [];
  }

  paused(on) {
    this.pause.setAttribute("aria-pressed", String(on));
    this.pause.querySelector("[data-label]").textContent = on ? "Resume" : "Pause";
  }

  add(text, kind) {
    if (this.pause.getAttribute("aria-pressed") !== "true") return this.write(text, kind);
    this.held.push([text, kind]);
    this.held.splice(0, Math.max(0, this.held.length - 2_000));
  }

  write(text, kind) {
    const part = document.createElement("span");
    if (kind) part.className = kind;
    part.textContent = text;
    this.output.append(part);
    this.characters += text.length;
    while (this.characters > SHOWN_CHARACTERS_MAX && this.output.children.length > 1) {
      this.characters -= this.output.firstElementChild.textContent.length;
      this.output.firstElementChild.remove();
    }
    if (this.sticks) this.output.scrollTop = this.output.scrollHeight;
  }

  say(words) {
    if (this.said.textContent !== words) this.said.textContent = words;
  }
}

customElements.define("work-log", WorkLog);
