// Numbers as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => whole.format(value);

export function plural(value, singular, plural = `${singular}s`) {
  return `${count(value)} ${value === 1 ? singular : plural}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60),
    rest = Math.round(seconds) % 60;
  if (minutes < 60) return `${minutes}m ${rest}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h ${minutes % 60}m` : `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

export function memory(kib) {
  if (!kib) return "–";
  if (kib < 1024) return `${kib} KiB`;
  if (kib < 1024 * 1024) return `${(kib / 1024).toFixed(kib < 10240 ? 1 : 0)} MiB`;
  return `${(kib / 1024 / 1024).toFixed(1)} GiB`;
}

export function bytes(size) {
  return size < 1024 ? plural(size, "byte") : memory(Math.round(size / 1024));
}

export function rate(perSecond) {
  if (!perSecond) return "";
  return perSecond >= 1 ? `${perSecond.toFixed(1)}/s` : `${(perSecond * 60).toFixed(1)}/min`;
}

export function time(ms) {
  if (!ms) return "–";
  const at = new Date(ms),
    today = new Date();
  const clock = at.toLocaleTimeString("en-GB");
  return at.toDateString() === today.toDateString()
    ? clock
    : `${at.toISOString().slice(0, 10)} ${clock}`;
}

export const age = (ms) => `${duration(Math.max(0, (Date.now() - ms) / 1000))} ago`;

export const dollars = (amount) =>
  `$${amount >= 100 ? amount.toFixed(0) : amount >= 1 ? amount.toFixed(2) : amount.toFixed(4)}`;
