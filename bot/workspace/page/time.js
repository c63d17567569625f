// Slack's timestamps ("1795300000.000100": seconds, then a counter) as words, in the reader's own time zone.

const format = (options) => new Intl.DateTimeFormat(undefined, options);
const CLOCK = format({ hour: "numeric", minute: "2-digit" });
const FULL = format({ dateStyle: "full", timeStyle: "short" });
const DAY = format({ weekday: "long", month: "long", day: "numeric" });
const DAY_YEAR = format({ month: "long", day: "numeric", year: "numeric" });

const TOKENS = {
  date_num: (when) => when.toISOString().slice(0, 10),
  date: (when) => DAY_YEAR.format(when),
  date_short: (when) => format({ month: "short", day: "numeric", year: "numeric" }).format(when),
  date_long: (when) => format({ dateStyle: "full" }).format(when),
  time: (when) => CLOCK.format(when),
  time_secs: (when) => format({ hour: "numeric", minute: "2-digit", second: "2-digit" }).format(when),
  ago: (when) => ago(when),
};

/** One `{token}` of Slack's date format; null when there is no such token. */
export function formatToken(token, when) {
  const pretty = token.endsWith("_pretty");
  const make = TOKENS[token.replace(/_pretty$/, "")];
  if (!make) return null;
  return (pretty && relativeDay(when)) || make(when);
}

export const dateOf = (ts) => new Date(Number.parseFloat(ts) * 1000);
export const clock = (ts) => CLOCK.format(dateOf(ts));
/** The time alone, for places too narrow for "PM". */
export const shortClock = (ts) => clock(ts).replace(/\s?[AP]M$/i, "");
export const fullTime = (ts) => FULL.format(dateOf(ts));
export const dayKey = (ts) => dateOf(ts).toDateString();

/** "Today", "Yesterday", or the date. */
export function dayName(ts) {
  const when = dateOf(ts);
  return relativeDay(when, true) ?? (when.getFullYear() === new Date().getFullYear() ? DAY : DAY_YEAR).format(when);
}

function relativeDay(when, capital = false) {
  const days = Math.round((midnight(when) - midnight(new Date())) / 86_400_000);
  const word = { 0: "today", "-1": "yesterday", 1: "tomorrow" }[days];
  return word && capital ? word[0].toUpperCase() + word.slice(1) : word;
}

function midnight(when) {
  return new Date(when.getFullYear(), when.getMonth(), when.getDate()).getTime();
}

/** "just now", "4 minutes ago", "2 days ago". */
export function ago(when) {
  const seconds = (Date.now() - when.getTime()) / 1000;
  if (seconds < 60) return "just now";
  const units = [["day", 86_400], ["hour", 3_600], ["minute", 60]];
  const [unit, size] = units.find(([, length]) => seconds >= length);
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(-Math.floor(seconds / size), unit);
}
