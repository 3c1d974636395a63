// The line of figures at the top, and what is out of the ordinary.

const RATES_MAX = 60; // two minutes
const rates = []; // attaches a second, the newest last
let counted_before = null; // {since_ms, attaches, time_ms}

function counter(state, name) {
  const found = ((state.counted || {}).counters || []).find((c) => c.name === name);
  return found ? found.value : null;
}

function take_rate(state) {
  const attaches = counter(state, 'attaches');
  if (attaches === null) return;
  const now = {since_ms: state.counted.since_ms, attaches, time_ms: state.time_ms};
  if (counted_before && counted_before.since_ms === now.since_ms && now.time_ms > counted_before.time_ms) {
    rates.push((attaches - counted_before.attaches) / (now.time_ms - counted_before.time_ms) * 1000);
    if (rates.length > RATES_MAX) rates.shift();
  }
  counted_before = now;
}

function sparkline() {
  const top = Math.max(1, ...rates);
  const points = rates.map((rate, i) => `${(RATES_MAX - rates.length + i) / (RATES_MAX - 1) * 100} ${20 - rate / top * 18}`);
  const drawing = svg('svg', {class: 'spark', viewBox: '0 0 100 22', preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  drawing.append(svg('path', {d: points.length > 1 ? `M${points.join('L')}` : 'M0 20'}));
  return drawing;
}

function tile(label, figure, unit, ...more) {
  return h('div.card.tile', {'data-key': label}, h('p.label', null, label),
    h('p.figure', null, figure, unit ? h('small', null, ` ${unit}`) : null), h('div.more', null, more));
}

function attach_tile(state) {
  const attach = ((state.counted || {}).histograms || []).find((histogram) => histogram.name === 'attach');
  const all = counter(state, 'attaches');
  const half = median(attach);
  if (all === null) return tile('Attaches', '–', '', 'not seen by this exporter');
  return tile('Attaches', number(all), rates.length ? `${rates.at(-1) < 10 ? rates.at(-1).toFixed(1) : Math.round(rates.at(-1))} a second` : '',
    half === null ? 'none yet' : `half of them within ${brief(half)}`, sparkline());
}

// "2 building", and "1 failed" so that nobody overlooks it; null: all are in the states that are told elsewhere.
function in_states(states, elsewhere) {
  const names = Object.keys(states).filter((name) => !elsewhere.includes(name));
  return names.length ? names.sort().map((name, i) => [i ? ' ' : null, pill(`${number(states[name])} ${name}`, STATES[name])]) : null;
}

function show_summary(state) {
  const s = state.status;
  const budget = s.devices.filter((d) => d.kind !== 'host' || s.devices.length === 1).reduce((sum, d) => sum + d.budget, 0);
  const {versions = {}, jobs = {}, workers} = state.totals;
  const queued = s.jobs_queued ?? jobs.queued ?? 0;
  take_rate(state);
  show('summary',
    tile('Weights held', ...size(s.bytes).split(NARROW), `of ${size(budget)} budget${s.shared_bytes ? `, ${size(s.shared_bytes)} shared` : ''}`),
    tile('Versions', number(versions.ready || 0), 'ready', in_states(versions, ['ready']) || `${count(s.pins, 'pin')}, ${count(s.aliases, 'alias', 'aliases')}`),
    tile('Workers', workers === undefined ? '–' : number(workers), workers === undefined ? '' : 'with leases', count(s.leases, 'lease'), s.waiting ? `, ${count(s.waiting, 'request')} waiting` : ''),
    tile('Jobs', number(s.jobs_running), 'running', queued ? `${number(queued)} queued` : count(s.loaders, 'loader') + (s.standby ? ', one stands by' : ''),
      jobs.failed ? [' ', pill(`${number(jobs.failed)} failed`, 'bad')] : null),
    state.restricted ? null : attach_tile(state));
}

function show_about(state) {
  const s = state.status;
  document.getElementById('about').textContent = `gpuwmd ${shown(s.server)}, up ${span(s.uptime_ms)}${s.epoch > 1 ? `, start ${number(s.epoch)} with these weights` : ''}`;
}

function notice(kind, key, ...text) {
  return h(`p.notice${kind ? `.${kind}` : ''}`, {'data-key': key}, ...text);
}

// What a reader should know before the figures.
function notices_of(state) {
  const s = state.status || {};
  const list = [];
  if (s.locked) list.push(notice('bad', 'locked', shown(s.locked.message)));
  if (s.draining) list.push(notice('warn', 'draining', 'gpuwmd is draining: it gives no new leases until its next start.'));
  if (s.lost) list.push(notice('bad', 'lost', `${count(s.lost, 'version')} of the last gpuwmd could not be taken over.`));
  if (s.grace_ms) list.push(notice('', 'grace', `gpuwmd has started again and took over ${count(s.adopted, 'version')}. It frees nothing for another ${span(s.grace_ms)}.`));
  if (s.still_mapped) list.push(notice('warn', 'mapped', `${size(s.still_mapped)} of freed versions may still be mapped by holders whose leases were revoked.`));
  if (!state.restricted && !state.sees.clients) {
    list.push(notice('', 'sight', 'This exporter connects as a plain worker. It sees the models that its user may attach to, and no clients, jobs or counters. Add its user to the group gpuwm-observe to see all.'));
  }
  return list;
}
