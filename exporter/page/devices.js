// Devices as bars: what each version holds of the budget.

const LEGEND_MAX = 24; // entries; the smallest versions of more are one

// bytes: in the bar. figure: what the legend says.
function piece(label, bytes, style, figure) {
  return {label, bytes, style, figure: figure || size(bytes)};
}

// The device whose memory the part is; none if its version lies on files.
function lies_on(version, part) {
  if (version.tier === 'files') return null;
  return version.tier === 'host' ? 'host' : part.device;
}

// What a version has on this device, and how much of it other versions have too.
function part_of(version, device) {
  const parts = version.parts.filter((part) => lies_on(version, part) === device);
  const sum = (key) => parts.reduce((all, part) => all + (part[key] || 0), 0);
  return {version, bytes: sum('bytes'), common: sum('shared_bytes')};
}

function version_piece({version, bytes, common}) {
  const note = common === bytes ? ', shared' : common ? `, ${size(common)} of it shared` : '';
  const state = version.state === 'ready' ? '' : ` (${version.state})`;
  return piece(full(version.model, version.tag) + state, bytes - common, color(version.version), size(bytes) + note);
}

// The versions on this device, the largest first.
function versions_on(state, device) {
  return state.versions.filter((version) => version.state !== 'failed').map((version) => part_of(version, device))
    .filter((part) => part.bytes > 0).sort((a, b) => b.bytes - a.bytes);
}

// How much of the rest is shared, and not promised. gpuwmd tells what several versions have for all devices together:
// a device's part of it goes by what its versions share.
function shared_on(state, parts, rest) {
  const here = parts.reduce((sum, part) => sum + part.common, 0);
  const all = state.versions.reduce((sum, version) => sum + (version.shared_bytes || 0), 0);
  if (!here) return 0;
  if (!state.status.publishes && !state.status.jobs_running) return rest;
  return Math.min(rest, Math.round(state.status.shared_bytes * here / all));
}

// Memory that several versions have is one piece, in the colors of the first two of them.
function shared_piece(parts, bytes) {
  const [one, other] = parts.filter((part) => part.common).map((part) => `var(--${color(part.version.version)})`);
  const shared = piece('shared by several versions', bytes, 'several');
  shared.colors = `repeating-linear-gradient(135deg, ${one} 0 9px, ${other || one} 9px 18px)`;
  return shared;
}

function in_legend(pieces) {
  if (pieces.length <= LEGEND_MAX) return pieces;
  const rest = pieces.slice(LEGEND_MAX - 1);
  return [...pieces.slice(0, LEGEND_MAX - 1),
    piece(count(rest.length, 'smaller version'), rest.reduce((sum, p) => sum + p.bytes, 0), rest[0].style)];
}

function pieces_of(state, device) {
  const parts = versions_on(state, device.device);
  const versions = in_legend(parts.map(version_piece));
  const regions = state.regions.filter((region) => region.device === device.device).reduce((sum, r) => sum + r.bytes, 0);
  const copies = (state.copies || []).filter((copy) => copy.device === device.device).reduce((sum, c) => sum + c.bytes, 0);
  const named = versions.reduce((sum, p) => sum + p.bytes, 0) + regions + copies + device.contexts + device.still_mapped;
  const rest = Math.max(0, device.used - named);
  const shared = shared_on(state, parts, rest);
  return [...versions,
    ...[...(shared ? [shared_piece(parts, shared)] : []),
      piece('promised, not there yet', rest - shared, 'promised'),
      piece('regions', regions, 'region'),
      piece('copies by CUDA IPC', copies, 'copy'),
      piece('contexts of loaders', device.contexts, 'context'),
      piece('given up, still mapped', device.still_mapped, 'mapped')].filter((p) => p.bytes > 0)];
}

// "cuda:0": the name of a GPU at the command line
function short_name(state, device) {
  const at = state.status.devices.filter((d) => d.kind === 'cuda').findIndex((d) => d.device === device);
  return at < 0 ? shown(device) : `cuda:${at}`;
}

function share(bytes, budget) {
  const percent = budget ? bytes / budget * 100 : 0;
  return percent >= 10 ? `${percent.toFixed(0)} %` : percent >= 0.1 ? `${percent.toFixed(1)} %` : '<0.1 %';
}

function device_card(state, device) {
  const pieces = pieces_of(state, device);
  const left = Math.max(0, device.budget - device.used);
  const scale = Math.max(device.budget, device.used, 1);
  const said = pieces.map((p) => `${p.label} ${p.figure}`).concat(`${size(left)} left`).join(', ');
  return h('article.card.device', {'data-key': device.device},
    h('div.top', null,
      h('h3', null, shown(device.name), device.kind === 'host' ? null : h('span.mono', null, short_name(state, device.device)),
        device.lost ? [' ', pill('lost', 'bad')] : null),
      h('p.quiet', null, `${size(device.used)} of ${size(device.budget)} budget, ${size(left)} left`)),
    device.lost ? h('p.notice.bad', null, shown(device.lost.message)) : null,
    h('div.bar', {role: 'img', 'aria-label': said},
      pieces.filter((p) => p.bytes > 0).map((p) => h(`span.${p.style}`, {title: `${p.label}: ${p.figure}`, 'data-key': p.label,
        css: {width: `${p.bytes / scale * 100}%`, ...(p.colors ? {background: p.colors} : {})}}))),
    h('ul.legend', null, pieces.map((p) => h('li', {'data-key': p.label}, h(`span.swatch.${p.style}`, p.colors ? {css: {background: p.colors}} : null),
      h('span.cut', {title: p.label}, p.label),
      h('span.quiet', null, p.bytes ? `${p.figure}, ${share(p.bytes, device.budget)}` : p.figure)))),
    device.kind === 'host' ? null : h('p.quiet.mono.id', null, shown(device.device)));
}

function show_devices(state) {
  const devices = state.status.devices;
  // The host's memory is of interest where it holds something, or there is nothing else.
  const told = devices.filter((d) => d.kind !== 'host' || d.used || devices.length === 1);
  told.sort((a, b) => (a.kind === 'host') - (b.kind === 'host'));
  show('devices', told.length ? told.map((d) => device_card(state, d)) : empty('No loader has told the devices yet.'));
}
