// Talking to the workspace's server: requests, and the socket over which it tells what changed.

/** What the server refused, in words for people. */
export class Refused extends Error {
  constructor(error, text) {
    super(text || error);
    this.code = error;
  }
}

export async function get(path, query) {
  return answered(() => fetch(`/page/${path}?${new URLSearchParams(query)}`));
}

export async function post(path, body) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return answered(() => fetch(`/page/${path}`, request));
}

async function answered(send) {
  let answer;
  try {
    answer = await (await send()).json();
  } catch {
    throw new Refused("unreachable", "The workspace's server does not answer. Is it still running?");
  }
  if (answer.ok === false) throw new Refused(answer.error, answer.text);
  return answer;
}

const FIRST_WAIT = 250; // ms; doubled up to LONGEST_WAIT
const LONGEST_WAIT = 4000;

/** The server's pushes for one person, connected again after every loss until `close()`. */
export class Live {
  constructor({ as, onPush, onOpen, onLost }) {
    Object.assign(this, { as, onPush, onOpen, onLost });
    this.wait = FIRST_WAIT;
    this.closed = false;
    this.#connect();
  }

  #connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/page/ws?as=${encodeURIComponent(this.as)}`);
    this.socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      if (!this.closed) this.onOpen();
    });
    this.socket.addEventListener("message", (event) => {
      if (!this.closed) this.onPush(JSON.parse(event.data));
    });
    this.socket.addEventListener("close", () => this.#lost());
  }

  #lost() {
    if (this.closed) return;
    this.onLost();
    this.timer = setTimeout(() => this.#connect(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}
