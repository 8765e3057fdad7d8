// The small parts that every page may use. Each works on what the server rendered; without
// JavaScript the text, the links and the forms are still there.

const YEAR_SECONDS = 31536000;

/** <time-ago><time datetime>: keeps "3 min ago" true. Stops with the page. */
class TimeAgo extends HTMLElement {
  static live = new Set();

  connectedCallback() {
    TimeAgo.live.add(this);
    this.refresh();
  }

  disconnectedCallback() {
    TimeAgo.live.delete(this);
  }

  refresh() {
    const time = this.querySelector("time");
    const passed = (Date.now() - Date.parse(time?.dateTime)) / 1000;
    if (Number.isNaN(passed)) return;
    const text = TimeAgo.text(passed);
    if (time.textContent !== text) time.textContent = text;
  }

  static text(passed) {
    const seconds = Math.floor(Math.abs(passed));
    if (seconds < 10) return "just now";
    const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]].find(([, n]) => seconds >= n);
    const count = `${Math.floor(seconds / size)} ${unit}`;
    return passed > 0 ? `${count} ago` : `in ${count}`;
  }
}
setInterval(() => TimeAgo.live.forEach((one) => one.refresh()), 10000);

/** <copy-button data-from="#id">: copies that element's text and says so. */
class CopyButton extends HTMLElement {
  connectedCallback() {
    const button = this.querySelector("button");
    const label = button.querySelector("[data-label]") ?? button;
    const before = label.textContent;
    button.addEventListener("click", async () => {
      const text = document.querySelector(this.dataset.from).textContent.trim();
      try {
        await navigator.clipboard.writeText(text);
        label.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(document.querySelector(this.dataset.from));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        label.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => (label.textContent = before), 2500);
    });
  }
}

/** <confirm-dialog data-dialog="id">: its link or button opens that <dialog> instead of leaving. */
class ConfirmDialog extends HTMLElement {
  connectedCallback() {
    this.addEventListener("click", (event) => {
      const dialog = document.getElementById(this.dataset.dialog);
      if (!dialog || !event.target.closest("a, button")) return;
      event.preventDefault();
      dialog.showModal();
      const body = dialog.querySelector(".body");
      if (body && body.scrollHeight > body.clientHeight) body.tabIndex = 0; // keys scroll it, too
      dialog.dispatchEvent(new CustomEvent("opened", { bubbles: true }));
    });
  }
}

/** <live-tape data-max="40">: marks what is new, keeps the list short, can be held still. */
class LiveTape extends HTMLElement {
  connectedCallback() {
    this.list = this.querySelector(".tape");
    this.held = document.createDocumentFragment();
    const pause = this.querySelector("[data-pause]");
    this.seen = new WeakSet(this.list.children);
    new MutationObserver(() => this.tidy()).observe(this.list, { childList: true });
    pause?.addEventListener("click", () => {
      const on = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", String(on));
      pause.querySelector("[data-label]").textContent = on ? "Resume" : "Pause";
      if (!on) this.list.prepend(this.held);
    });
    this.pause = pause;
  }

  /** Live lines are rendered once for everybody, so their times come in UTC. */
  localise(item) {
    const time = item.querySelector("time");
    const at = new Date(time?.dateTime ?? "");
    if (!Number.isNaN(at.valueOf())) time.textContent = at.toLocaleTimeString("en-GB");
  }

  tidy() {
    const paused = this.pause?.getAttribute("aria-pressed") === "true";
    const items = [...this.list.children];
    const told = new Set([...items.filter((item) => this.seen.has(item)), ...this.held.children].map((item) => item.dataset.position));
    for (const item of items) {
      if (this.seen.has(item)) continue;
      // What the page showed already, and was told again since its socket opened later.
      if (told.has(item.dataset.position)) {
        item.remove();
        continue;
      }
      told.add(item.dataset.position);
      this.seen.add(item);
      this.localise(item);
      if (paused) {
        this.held.prepend(item);
        this.seen.delete(item);
      } else {
        item.classList.add("fresh");
      }
    }
    const most = Number(this.dataset.max ?? 40);
    while (this.list.children.length > most) this.list.lastElementChild.remove();
    while (this.held.children.length > most) this.held.lastElementChild.remove();
    const label = this.pause?.querySelector("[data-label]");
    if (paused && this.held.children.length) label.textContent = `Resume (${this.held.children.length} new)`;
  }
}

customElements.define("time-ago", TimeAgo);
customElements.define("copy-button", CopyButton);
customElements.define("confirm-dialog", ConfirmDialog);
customElements.define("live-tape", LiveTape);

// Theme: automatic, light, dark. The server reads the cookie, so the first paint is right.
document.querySelectorAll("[data-theme-toggle]").forEach((button) => {
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    remember("theme", root.dataset.theme);
    document.dispatchEvent(new Event("themechange"));
  });
});

function remember(name, value) {
  const secure = location.protocol === "https:" ? ";secure" : "";
  document.cookie = `${name}=${value};path=/;max-age=${YEAR_SECONDS};samesite=lax${secure}`;
}

// The server writes times in the zone of this browser, from the next page on.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !document.cookie.includes(`zone=${zone}`)) remember("zone", zone);

// Dialogs: a click on the backdrop, or on anything marked data-close, shuts them.
document.addEventListener("click", (event) => {
  const dialog = event.target.closest?.("dialog");
  if (dialog && (event.target === dialog || event.target.closest("[data-close]"))) dialog.close();
});

// A part of the page that cannot be had keeps what it shows; the page says why, once, at its top.
// A whole page in answer (a proxy's, or one that we did not expect) is never put into a part.
const trouble = document.getElementById("trouble");
let troubled = null;
function showTrouble(source, text) {
  if (!trouble) return;
  troubled = source;
  const note = document.createElement("p");
  note.textContent = text || trouble.dataset.unreachable;
  const box = document.createElement("div");
  box.className = "note warn";
  box.append(note);
  trouble.replaceChildren(box);
}
document.addEventListener("htmx:response:error", ({ detail: { ctx } }) => {
  if (ctx.hx?.redirect || ctx.response.status === 422) return;
  const told = new DOMParser().parseFromString(ctx.text ?? "", "text/html").querySelector("[data-refusal]");
  showTrouble(ctx.sourceElement, told?.textContent);
});
document.addEventListener("htmx:error", ({ detail: { ctx } }) => ctx && showTrouble(ctx.sourceElement, ""));
document.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  if (troubled && (ctx.sourceElement === troubled || !troubled.isConnected) && ctx.response.status < 400) {
    troubled = null;
    trouble.replaceChildren();
  }
});

// A socket that is closed for want of a log-in: there, and back to this page.
const NOT_SIGNED_IN = 4401;
document.addEventListener("htmx:ws:close", ({ detail: { code } }) => {
  if (code === NOT_SIGNED_IN) document.dispatchEvent(new Event("signed-out"));
});
document.addEventListener("signed-out", () => {
  location.assign(`/accounts/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
});

// The state of the live connection, in words, wherever the page shows it.
const LINK_WORDS = { live: "Live", lost: "Reconnecting…" };
function showLink(state) {
  document.querySelectorAll(".link[data-state]").forEach((link) => {
    link.dataset.state = state;
    link.querySelector("span").textContent = LINK_WORDS[state];
  });
}
// Parts of pages that show the market's state refresh themselves on this event.
function marketChanged() {
  document.body.dispatchEvent(new Event("market-changed"));
}
let wasLinked = false;
document.addEventListener("htmx:ws:after:connection", () => {
  showLink("live");
  // Not all that a page shows is told of by the socket.
  if (wasLinked) marketChanged();
  wasLinked = true;
});
document.addEventListener("htmx:ws:close", () => showLink("lost"));
// The socket that follows on this one is told what happened since the newest line that came by it.
document.addEventListener("htmx:ws:before:message:incoming", ({ detail }) => {
  const newest = /data-position="(\d+)"/.exec(detail.message.data)?.[1];
  if (newest) detail.connection.url = detail.connection.url.replace(/([?&]after=)\d+/, `$1${newest}`);
  if (document.getElementById("tape")) return;
  detail.cancelled = true; // a page without a tape has nowhere to put its lines
  marketChanged();
});
document.addEventListener("htmx:ws:after:message:incoming", marketChanged);
