// <bring-folder data-for="id of a select">: a folder of this computer is sent in blobs that are named
// by their SHA-256, as `offpeak files up` does, and then chosen in the select. What is there already
// is not sent again, so a sending that broke off goes on where it was. Blobs go straight to storage;
// where the browser may or can not reach it, through the market.

const BLOB_BYTES = 8 * 2 ** 20;
const PACKED_BELOW = 2 ** 20;
const ASKED_MAX = 500;
const AT_ONCE = 4;
const ROUNDS_MAX = 4;
const PAUSE_MS = 1000;
const REACH_MS = 8000;
const PASSING = new Set([403, 408, 429, 500, 502, 503, 504]);
const LEFT_OUT = new Set([".git", ".venv", "__pycache__"]);
const IGNORE = ".offpeakignore";

class Refused extends Error {}

class BringFolder extends HTMLElement {
  connectedCallback() {
    this.input = this.querySelector("input[type=file]");
    this.bar = this.querySelector("progress");
    this.said = this.querySelector("[data-said]");
    this.input.addEventListener("change", () => this.bring([...this.input.files]));
  }

  async bring(files) {
    if (!files.length) return;
    this.input.disabled = true;
    try {
      const root = files[0].webkitRelativePath.split("/")[0];
      const found = listed(files);
      this.tell(`Reading ${found.length} files…`);
      const parcel = await packed(found, (part) => this.show(part / 2));
      const sent = await this.send(parcel, (part) => this.show(0.5 + part / 2));
      const folder = await asked("folders", { manifest: parcel.manifest, title: root.slice(0, 120) });
      this.choose(folder, root);
      this.tell(`${root}: ${found.length} files, ${size(sent)} sent.`);
    } catch (failure) {
      this.tell(failure instanceof Refused ? failure.message : "The folder was not sent. Choose it again.");
      if (!(failure instanceof Refused)) console.warn(failure);
    } finally {
      this.bar.hidden = true;
      this.input.disabled = false;
      this.input.value = "";
    }
  }

  async send(parcel, show) {
    const hashes = [...parcel.blobs.keys()];
    const way = new Way();
    for (let at = 0; at < hashes.length; at += ASKED_MAX) {
      const some = hashes.slice(at, at + ASKED_MAX);
      await way.send(new Map(some.map((each) => [each, parcel.blobs.get(each)])));
      show(Math.min(1, (at + some.length) / hashes.length));
    }
    return way.sent;
  }

  // What the form is sent to must show the folder: it is kept a moment before it is listed.
  choose(folder, title) {
    const select = document.getElementById(this.dataset.for);
    const action = new URL(select.form.action);
    action.searchParams.set("after", folder.position);
    select.form.action = action;
    select.add(new Option(title, folder.id, true, true), 1);
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }

  show(part) {
    this.bar.hidden = false;
    this.bar.value = part;
  }

  tell(text) {
    this.said.textContent = text;
  }
}

// How blobs get to storage, and how many bytes went.
class Way {
  sent = 0;
  through = false;

  // What is missing is asked for anew where links ended or something on the way broke.
  async send(blobs) {
    const sizes = Object.fromEntries([...blobs].map(([hash, blob]) => [hash, blob.size]));
    let wrong = "";
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const asksThrough = this.through;
      const { links } = await asked(`folders/missing${asksThrough ? "?through=1" : ""}`, { blobs: sizes });
      wrong = "";
      await inTurn(Object.entries(links), async ([hash, link]) => {
        wrong = (await this.put(link, blobs.get(hash))) || wrong;
      });
      if (!wrong) return;
      if (asksThrough === this.through) await pause(PAUSE_MS * 2 ** round);
    }
    throw new Refused(wrong);
  }

  // Send one blob; return what went wrong that may go well the next time.
  async put(link, blob) {
    const elsewhere = !link.url.startsWith("/");
    let answer;
    try {
      if (elsewhere) await this.reach(link.url);
      answer = await fetch(link.url, { method: "PUT", headers: link.headers, body: blob });
    } catch {
      // The bucket lets no page of another site in, or is not reached; no browser says which.
      this.through ||= elsewhere;
      return elsewhere ? "The storage for files was not reached." : "The market was not reached.";
    }
    if (answer.ok) {
      this.sent += blob.size;
      return "";
    }
    const said = await reason(answer);
    this.through ||= elsewhere;
    if (!elsewhere && !PASSING.has(answer.status)) throw new Refused(said);
    return said;
  }

  // Find out once, and soon, if a storage answers at all: a firewall may swallow what is sent.
  reach(url) {
    if (this.through) throw new TypeError("the storage was not reached before");
    this.reached ??= fetch(url, { mode: "no-cors", credentials: "omit", signal: AbortSignal.timeout(REACH_MS) });
    return this.reached;
  }
}

function pause(milliseconds) {
  return new Promise((over) => setTimeout(over, milliseconds));
}

// What of a folder is sent, in the order of its paths.
function listed(files) {
  const found = [];
  for (const file of files) {
    const names = file.webkitRelativePath.split("/").slice(1);
    if (names.length === 1 && names[0] === IGNORE) {
      throw new Refused(`This folder has an ${IGNORE}, which only “offpeak files up” follows: bring it by that.`);
    }
    if (!names.some((name) => LEFT_OUT.has(name))) found.push({ path: names.join("/"), file });
  }
  if (!found.length) throw new Refused("This folder has no file that would be sent.");
  if (!crypto.subtle) throw new Refused("This browser names files only on pages served by https.");
  return found.sort((one, other) => (one.path < other.path ? -1 : 1));
}

// Large files are cut into blobs, small ones lie together in one.
function* drafts(found) {
  let held = [];
  let bytes = 0;
  for (const { path, file } of found) {
    if (file.size >= PACKED_BELOW) {
      for (let since = 0; since < file.size; since += BLOB_BYTES) {
        yield [{ path, data: file.slice(since, since + BLOB_BYTES) }];
      }
    } else if (file.size) {
      if (bytes + file.size > BLOB_BYTES) {
        yield held;
        [held, bytes] = [[], 0];
      }
      held.push({ path, data: file });
      bytes += file.size;
    }
  }
  if (held.length) yield held;
}

async function packed(found, show) {
  const blobs = new Map();
  const parts = new Map(found.map(({ path }) => [path, []]));
  const all = [...drafts(found)];
  for (const [number, draft] of all.entries()) {
    const blob = new Blob(draft.map(({ data }) => data));
    const hash = await sha256(blob);
    if (!blobs.has(hash)) blobs.set(hash, blob);
    const index = [...blobs.keys()].indexOf(hash);
    let offset = 0;
    for (const { path, data } of draft) {
      parts.get(path).push([index, offset, data.size]);
      offset += data.size;
    }
    show((number + 1) / all.length);
  }
  const body = new Blob([
    JSON.stringify({
      format: "offpeak-folder-1",
      blobs: [...blobs].map(([hash, blob]) => [hash, blob.size]),
      files: found.map(({ path }) => ({ path, parts: parts.get(path) })),
    }),
  ]);
  const manifest = await sha256(body);
  blobs.set(manifest, body);
  return { blobs, manifest };
}

async function sha256(blob) {
  let bytes;
  try {
    bytes = await blob.arrayBuffer();
  } catch {
    throw new Refused("A file changed while it was read. Choose the folder again.");
  }
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function inTurn(work, act) {
  const left = [...work];
  const one = async () => {
    for (let next = left.shift(); next; next = left.shift()) await act(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
}

async function asked(path, body) {
  const answer = await fetch(`/api/v1/${path}`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "Idempotency-Key": crypto.randomUUID(),
      "X-CSRFToken": JSON.parse(document.body.getAttribute("hx-headers:inherited"))["X-CSRFToken"],
    },
    body: JSON.stringify(body),
  });
  if (answer.status === 401) document.dispatchEvent(new Event("signed-out"));
  if (!answer.ok) throw new Refused(await reason(answer));
  return answer.json();
}

async function reason(answer) {
  try {
    return (await answer.json()).detail;
  } catch {
    return `The folder was not sent: the market answered ${answer.status}.`;
  }
}

function size(bytes) {
  const mib = bytes / 2 ** 20;
  return mib >= 1 ? `${mib.toFixed(1)} MiB` : `${(bytes / 1024).toFixed(1)} KiB`;
}

customElements.define("bring-folder", BringFolder);
