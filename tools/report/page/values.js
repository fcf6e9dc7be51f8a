// How amounts and times are written, and how elements are made. Names come from programs that were
// recorded and may be anything: they become text, never markup.
const recording = JSON.parse(document.getElementById('recording').textContent);

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'text') element.textContent = value;
    else if (name === 'class') element.className = value;
    else if (name === 'style') element.style.cssText = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

function bytes(amount) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    ++unit;
  }
  // 1023.96 would be written as 1024.0.
  if (unit > 0 && amount >= 1023.95 && unit < units.length - 1) {
    amount /= 1024;
    ++unit;
  }
  return (unit === 0 ? String(amount) : amount.toFixed(1)) + ' ' + units[unit];
}

// With as many digits as tell moments of this step apart.
function time(ns, step_ns = 1e7) {
  const seconds = ns / 1e9;
  if (ns < 1e9 && step_ns < 1e6) return (ns / 1e6).toFixed(step_ns < 1e4 ? 3 : 1) + ' ms';
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step_ns / 1e9))));
  if (seconds < 120) return seconds.toFixed(digits) + ' s';
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  const rest = (seconds % 60).toFixed(Math.min(digits, 2)).padStart(digits > 0 ? 3 + Math.min(digits, 2) : 2, '0');
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}` : `${minutes}:${rest} min`;
}

// Of a life, which may be anything between a microsecond and a day.
function duration(ns) {
  if (ns < 1e6) return (ns / 1e3).toFixed(0) + ' µs';
  if (ns < 1e9) return (ns / 1e6).toFixed(1) + ' ms';
  return time(ns, 1e8);
}

const count = (number) => number.toLocaleString('en');
const percent = (part, whole) => (whole > 0 ? (part / whole * 100).toFixed(part / whole < 0.1 ? 1 : 0) : '0') + ' %';
const plural = (number, one, more = one + 's') => `${count(number)} ${number === 1 ? one : more}`;

const processName = (process) => recording.processes[process]?.name ?? 'unknown process';
const kindName = (kind) => recording.kinds[kind] ?? 'unknown';

const isTouched = () => matchMedia('(pointer: coarse)').matches;

function press(buttons, wanted) {
  for (const button of buttons) button.setAttribute('aria-pressed', String(button === wanted));
}
