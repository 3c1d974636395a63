'use strict';
// Texts for people: sizes, times, names.

// A number and its unit stay on one line.
const NARROW = '\u00a0';
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// "1.5 GiB"
function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)}${NARROW}${UNITS[unit]}`;
}

function number(n) {
  return n.toLocaleString('en-US');
}

// "3 leases"
function count(n, noun, plural = `${noun}s`) {
  return `${number(n)} ${n === 1 ? noun : plural}`;
}

const STEPS = [[86400, 'd'], [3600, 'h'], [60, 'min']];

// "3 h 12 min", "8 s"
function span(ms) {
  let seconds = Math.max(0, Math.round(ms / 1000));
  for (let i = 0; i < STEPS.length; i++) {
    const [length, unit] = STEPS[i];
    if (seconds < length) continue;
    const rest = i + 1 < STEPS.length ? Math.floor((seconds % length) / STEPS[i + 1][0]) : 0;
    return `${Math.floor(seconds / length)} ${unit}${rest ? ` ${rest} ${STEPS[i + 1][1]}` : ''}`;
  }
  return `${seconds} s`;
}

// "412 µs", "3.2 ms", "1.4 s"
function brief(us) {
  if (us < 1000) return `${Math.round(us)}${NARROW}µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)}${NARROW}ms`;
  return `${(us / 1e6).toFixed(1)}${NARROW}s`;
}

function clock(ms, now) {
  const time = new Date(ms);
  const day = now - ms > 64800000 ? time.toLocaleDateString(undefined, {month: 'short', day: 'numeric'}) + ' ' : '';
  return day + time.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: day ? undefined : '2-digit', hour12: false});
}

// Names come from users. Characters that are invisible or turn the direction of the text show as their number.
function shown(text) {
  return String(text ?? '').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16).toUpperCase()}}`);
}

function full(model, tag) {
  return `${shown(model)}@${shown(tag)}`;
}

// The median of a histogram of gpuwmd, as the bound that half of the times do not exceed. null: there are none.
function median(histogram) {
  const all = histogram ? histogram.counts.reduce((a, b) => a + b, 0) : 0;
  let sum = 0;
  for (let i = 0; all && i < histogram.bounds_us.length; i++) {
    sum += histogram.counts[i];
    if (sum * 2 >= all) return histogram.bounds_us[i];
  }
  return null;
}
