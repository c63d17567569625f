// Where the reader is, kept in the address so that a reload or a link shows the same:
// `#/C0LOCALOPS/1795300000.000100?as=U0LOCALANA` is a thread, in a channel, as a person.

/** {channel, thread, as}; each null when the address does not say. */
export function readRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [channel, thread] = path.split("/").map((part) => part || null);
  return { channel: channel ?? null, thread: thread ?? null, as: new URLSearchParams(query).get("as") };
}

function address({ channel, thread, as }) {
  const path = [channel, channel && thread].filter(Boolean).join("/");
  return `#/${path}${as ? `?as=${encodeURIComponent(as)}` : ""}`;
}

/** Change the address; `replace` leaves no step behind for the Back button. */
export function writeRoute(route, { replace = false } = {}) {
  const next = address(route);
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
}
