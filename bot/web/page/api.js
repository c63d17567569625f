// Talking to the server: requests, and the stream over which it tells what changed.

/** What the server refused, in words for people. */
export class Refused extends Error {
  constructor(status, { error, message } = {}) {
    super(message || "The server does not answer. Is it still running?");
    this.status = status;
    this.code = error ?? "unreachable";
  }
}

export const get = (path, query = {}) => {
  const wanted = Object.entries(query).flatMap(([name, value]) => [value].flat().filter((one) => one !== "" && one != null).map((one) => [name, one]));
  const text = new URLSearchParams(wanted).toString();
  return answered(() => fetch(`/api/${path}${text ? `?${text}` : ""}`));
};

export const post = (path, body = {}) =>
  answered(() => fetch(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json", "X-Sayso": "1" }, body: JSON.stringify(body) }));

async function answered(send) {
  let answer, body;
  try {
    answer = await send();
    body = await answer.json();
  } catch {
    throw new Refused(0);
  }
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

/** The path of something of a session. */
export const ofSession = (id, rest = "") => `sessions/${encodeURIComponent(id)}${rest}`;

/** Hear of changes: `onNews({sessions, more})`; `onState(on, gone)` says whether it is connected, and whether that is not tried again. */
export function listen(onNews, onState) {
  const source = new EventSource("/api/live");
  source.addEventListener("open", () => onState(true));
  source.addEventListener("error", () => onState(false, source.readyState === EventSource.CLOSED));
  source.addEventListener("message", (event) => onNews(JSON.parse(event.data)));
  return () => source.close();
}
