// Stored times (UTC, ISO 8601) as words, in the reader's own time zone.

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const clock = (text) => CLOCK.format(new Date(text));
export const full = (text) => FULL.format(new Date(text));

/** "14:03:22" today, else "Nov 3, 14:03:22". */
export function moment(text) {
  const when = new Date(text);
  return when.toDateString() === new Date().toDateString() ? clock(text) : `${DAY.format(when)}, ${clock(text)}`;
}

/** Seconds as "0.4 s", "12 s", "3 m 20 s", "2 h 5 m", "4 d 2 h". */
export function span(seconds) {
  if (seconds < 1) return `${Math.round(Math.max(0, seconds) * 1000)} ms`;
  if (seconds < 10) return `${Math.max(0, Math.round(seconds * 10) / 10)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const units = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  const [unit, size] = units[at];
  const [below, small] = units[at + 1];
  const rest = Math.floor((seconds % size) / small);
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${below}` : ""}`;
}

export const between = (from, to) => (new Date(to) - new Date(from)) / 1000;

/** "just now", "7 m ago", "2 d ago": one unit is enough. */
export function ago(text) {
  const seconds = (Date.now() - new Date(text)) / 1000;
  return seconds < 5 ? "just now" : `${span(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}
