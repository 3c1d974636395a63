// What happened, in sentences, the newest first.

const EVENTS_FIRST = 12; // more of them only if the reader asks
let all_events = false;

function who(event) {
  return `uid ${event.uid}, pid ${event.pid}`;
}

function reason(event) {
  return event.error ? `: ${shown(event.error.message)}` : '';
}

const ENDS = {done: 'is done', failed: 'failed', cancelled: 'was cancelled'};

// kind: [how it looks, sentence]
const SENTENCES = {
  version_ready: ['good', (e) => `${full(e.model, e.tag)} is ready`],
  version_failed: ['bad', (e) => `${full(e.model, e.tag)} failed${reason(e)}`],
  version_retiring: ['warn', (e) => `${full(e.model, e.tag)} retires${e.force_in_ms ? `, leases end in ${span(e.force_in_ms)}` : ''}`],
  version_freed: ['', (e) => `${full(e.model, e.tag)} is freed`],
  version_removed: ['', (e) => `${full(e.model, e.tag)} is removed from the list`],
  swapped: ['calm', (e, names) => (e.version
    ? `${full(e.model, e.alias)} is ${tag_of(names, e.version)} now${e.old ? `, was ${tag_of(names, e.old)}` : ''}`
    : `${full(e.model, e.alias)} is removed${e.old ? `, was ${tag_of(names, e.old)}` : ''}`)],
  revoked: ['warn', (e) => `${count(e.count, 'lease')} on ${full(e.model, e.tag)} revoked from ${who(e)}: ${shown(e.reason)}`],
  tainted: ['bad', (e) => `${full(e.model, e.tag)} is damaged on ${shown(e.device)}${reason(e)}`],
  demoted: ['calm', (e) => `${full(e.model, e.tag)} lies on ${shown(e.to)} now: ${shown(e.reason)}`],
  promoted: ['calm', (e) => `${full(e.model, e.tag)} is back from ${shown(e.from)}: ${shown(e.reason)}`],
  job: ['', (e) => `job ${e.job} for ${full(e.model, e.tag)} ${ENDS[e.state] || shown(e.state)}${e.note ? `: ${shown(e.note)}` : ''}`],
  peer_lost: ['warn', (e) => `a worker is gone (${who(e)}) with ${count(e.leases, 'lease')}`],
  device_lost: ['bad', (e) => `${shown(e.device)} is lost${reason(e)}`],
  wanted: ['', (e) => `${size(e.bytes)} of ${shown(e.device)} are wanted from workers that are awake there`],
  device_back: ['good', (e) => `${shown(e.device)} is back`],
  region_made: ['', (e) => `region ${shown(e.name || e.region)} of ${size(e.bytes)} made on ${shown(e.device)} by uid ${e.uid}`],
  region_ended: ['warn', (e) => `region ${shown(e.name || e.region)} ended${reason(e)}`],
  region_user_lost: ['warn', (e) => `a user of region ${shown(e.name || e.region)} is gone (${who(e)})`],
  draining: ['warn', () => 'gpuwmd drains: it takes no new work'],
  audit: ['calm', (e) => `${shown(e.command)} (${who(e)}${e.unit ? `, ${shown(e.unit)}` : ''}): ${shown(e.method)} ${shown(e.what)}${e.code ? `, refused with ${shown(e.code)}: ${shown(e.message)}` : ''}`],
  announced: ['', (e) => `a worker of ${full(e.model, e.tag)} is at ${shown(e.address || 'no address')}${e.state ? `, ${shown(e.state)}` : ''}`],
  lost: ['', () => 'events before this moment are not known any more'],
};

function event_row(event, names, now) {
  const [kind, sentence] = SENTENCES[event.kind] || ['', (e) => shown(e.kind)];
  const look = event.kind === 'audit' && event.code ? 'warn' : event.kind === 'job' && event.state === 'failed' ? 'bad' : kind;
  return h('li.event', {'data-key': `e${event.seq ?? `to${event.to}`}`},
    event.time_ms ? h('time', {datetime: new Date(event.time_ms).toISOString(), title: `${span(now - event.time_ms)} ago`}, clock(event.time_ms, now)) : h('span'),
    h(`span.dot${look ? `.${look}` : ''}`), h('span.name', null, sentence(event, names)));
}

function show_events(state, wanted) {
  const names = tag_names(state);
  const all = [...state.swaps, ...state.events].sort((a, b) => (b.seq ?? b.to) - (a.seq ?? a.to))
    .filter((e) => !wanted || (e.model && e.model.toLowerCase().includes(wanted)));
  const told = all_events ? all : all.slice(0, EVENTS_FIRST);
  show('events', told.length ? h('ul.card.rows', null, told.map((e) => event_row(e, names, state.time_ms)),
    all.length > told.length ? h('li', {'data-key': 'more'}, more_button(`Show all ${all.length}`, () => { all_events = true; redraw(); })) : null)
    : empty('Nothing yet.'));
}
