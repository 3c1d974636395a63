// Devices as bars: what each version holds of the budget.

const LEGEND_MAX = 24; // entries; the other versions of more are one

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
function shared_on(state, here, rest) {
  const all = state.totals.shared_bytes;
  if (!here || !all) return 0;
  if (!state.status.publishes && !state.status.jobs_running) return rest;
  return Math.min(rest, Math.round(state.status.shared_bytes * here / all));
}

// Memory that several versions have is one piece, in the colors of the first two of them that are listed.
function shared_piece(parts, bytes) {
  const [one, other] = parts.filter((part) => part.common).map((part) => `var(--${color(part.version.version)})`);
  const shared = piece('shared by several versions', bytes, 'others');
  if (!one) return shared;
  shared.colors = `repeating-linear-gradient(135deg, ${one} 0 9px, ${other || one} 9px 18px)`;
  return shared;
}

// Those of the first versions, and one of all others: of the smallest, and of those that the state does not list.
// own: the bytes of all versions here that none of them shares. all: how many versions there are here.
function in_legend(pieces, own, all) {
  const told = all > LEGEND_MAX ? pieces.slice(0, LEGEND_MAX - 1) : pieces;
  if (all === told.length) return told;
  const rest = own - told.reduce((sum, p) => sum + p.bytes, 0);
  return [...told, piece(count(all - told.length, told.length ? 'other version' : 'version'), rest, 'others')];
}

// What the totals have of a device; nothing of one that holds nothing.
function totals_on(state, device) {
  return {versions: 0, bytes: 0, shared_bytes: 0, regions: 0, copies: 0, ...state.totals.devices[device]};
}

function pieces_of(state, device) {
  const parts = versions_on(state, device.device);
  const all = totals_on(state, device.device);
  const {regions, copies} = all;
  const own = all.bytes - all.shared_bytes;
  const rooms = device.rooms || 0; // gpuwmd leaves it out where there are none
  const versions = in_legend(parts.map(version_piece), own, all.versions);
  const named = own + regions + copies + device.contexts + rooms + device.still_mapped;
  const rest = Math.max(0, device.used - named);
  const shared = shared_on(state, all.shared_bytes, rest);
  const sees_all = state.totals.workers !== undefined;
  return [...versions,
    ...[...(shared ? [shared_piece(parts, shared)] : []),
      piece(sees_all ? 'promised, not there yet' : 'promised, or not seen by this exporter', rest - shared, 'promised'),
      piece('regions', regions, 'region'),
      piece('copies by CUDA IPC', copies, 'copy'),
      piece('contexts of loaders', device.contexts, 'context'),
      piece('room of workers', rooms, 'room'),
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
