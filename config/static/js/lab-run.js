// <lab-run data-path="/lab">: has the lab run what the page's address asks for, shows how far it is,
// and puts what came of it in its place. Leaving the page or "Give up" ends the run.

const NOT_SIGNED_IN = 4401;

class LabRun extends HTMLElement {
  connectedCallback() {
    this.bar = this.querySelector("progress");
    this.said = this.querySelector("[data-said]");
    this.button = this.querySelector("button");
    this.button.addEventListener("click", () => (this.socket ? this.giveUp() : this.start()));
    this.start();
  }

  disconnectedCallback() {
    this.leave();
  }

  start() {
    const address = new URL("/ws/lab", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = (this.socket = new WebSocket(address));
    this.bar.removeAttribute("value");
    this.bar.hidden = false;
    this.button.textContent = "Give up";
    this.tell("Reading the log…");
    socket.addEventListener("open", () => {
      if (this.socket !== socket) socket.close();
      else socket.send(JSON.stringify({ path: this.dataset.path, query: location.search.slice(1) }));
    });
    socket.addEventListener("message", ({ data }) => {
      if (this.socket === socket) this.hear(JSON.parse(data));
    });
    socket.addEventListener("close", ({ code }) => {
      if (code === NOT_SIGNED_IN) document.dispatchEvent(new Event("signed-out"));
      if (this.socket === socket) this.stop("The connection was lost.");
    });
  }

  hear({ html, done, steps }) {
    if (html !== undefined) {
      this.socket = null;
      this.innerHTML = html;
      return;
    }
    this.bar.max = steps;
    this.bar.value = done;
    this.tell(`${done} of ${steps} facts and decisions run again, under both rules.`);
  }

  giveUp() {
    this.leave();
    this.stop("Given up.");
  }

  // A socket that is still connecting closes itself once it is open: to close it before is a fault
  // that the browser's console reports.
  leave() {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.close();
    this.socket = null;
  }

  stop(why) {
    this.socket = null;
    this.bar.hidden = true;
    this.button.textContent = "Run it again";
    this.tell(why);
  }

  tell(text) {
    if (this.said.textContent !== text) this.said.textContent = text;
  }
}

customElements.define("lab-run", LabRun);
