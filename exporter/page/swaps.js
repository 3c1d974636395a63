// Swaps in time: a lane for each alias, with the version that it named from when to when.

const LANES_MAX = 8; // those that moved last
const SWAPS_SHOWN = 40; // of all lanes: more are too narrow to read
const RANGE_MIN_MS = 30000; // so that a swap of a moment ago does not fill the lane

function tag_names(state) {
  const names = new Map();
  for (const event of state.events) if (event.version && event.tag) names.set(event.version, event.tag);
  for (const version of state.versions) names.set(version.version, version.tag);
  return names;
}

function tag_of(names, version) {
  return names.has(version) ? shown(names.get(version)) : version.slice(0, 8);
}

// [{name, swaps}], the lane that moved last first
function lanes_of(swaps) {
  const lanes = new Map();
  for (const swap of swaps) {
    if (swap.alias === 'previous') continue;
    const name = full(swap.model, swap.alias);
    if (!lanes.has(name)) lanes.set(name, {name, swaps: []});
    lanes.get(name).swaps.push(swap);
  }
  return [...lanes.values()].sort((a, b) => b.swaps.at(-1).time_ms - a.swaps.at(-1).time_ms);
}

// From when to when the alias named which version.
function spans_of(lane, from, now) {
  const spans = [];
  const add = (version, begin, end) => {
    if (version && end > from) spans.push({version, begin: Math.max(begin, from), end});
  };
  add(lane.swaps[0].old, 0, lane.swaps[0].time_ms);
  lane.swaps.forEach((swap, i) => add(swap.version, swap.time_ms, i + 1 < lane.swaps.length ? lane.swaps[i + 1].time_ms : now));
  return spans;
}

function lane_row(lane, names, from, now) {
  const range = now - from;
  return h('div.lane', {'data-key': lane.name}, h('span.cut', {title: lane.name}, lane.name),
    h('ul.track', {'aria-label': `${lane.name} in time`}, spans_of(lane, from, now).map((s) => {
      const text = `${tag_of(names, s.version)}, from ${clock(s.begin, now)} for ${span(s.end - s.begin)}`;
      return h(`li.cut.${color(s.version)}`, {title: text, 'data-key': `${s.version}${s.end === now ? '' : s.end}`,
        css: {left: `${(s.begin - from) / range * 100}%`, width: `${(s.end - s.begin) / range * 100}%`}}, tag_of(names, s.version));
    })));
}

function show_swaps(state) {
  const swaps = state.swaps.slice(-SWAPS_SHOWN);
  const lanes = lanes_of(swaps);
  if (!lanes.length) {
    show('swaps', empty('No alias has moved since the exporter began to listen.'));
    return;
  }
  const now = state.time_ms;
  const range = Math.max(RANGE_MIN_MS, (now - swaps[0].time_ms) * 1.06);
  const names = tag_names(state);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const rest = lanes.length - LANES_MAX;
  show('swaps', h('div.card.lanes', null, lanes.slice(0, LANES_MAX).map((lane) => lane_row(lane, names, now - range, now)),
    h('div.axis', {'aria-hidden': 'true', 'data-key': 'axis'}, ticks.map((t) => h('span', {css: {left: `${t * 100}%`}},
      t === 1 ? 'now' : `${span(range * (1 - t))} ago`))),
    rest > 0 ? h('p.quiet', {'data-key': 'left'}, `${count(rest, 'alias', 'aliases')} that moved earlier not shown: see What happened.`) : null));
}
