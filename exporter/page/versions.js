// Versions, and who holds them.

const VERSIONS_FIRST = 20; // more of them only if the reader asks
let all_versions = false;

const STATES = {ready: 'good', building: 'calm', checking: 'calm', retiring: 'warn', failed: 'bad'};

// version id: [{client, lease}]
function holders_of(state) {
  const holders = new Map();
  for (const client of state.clients) {
    for (const lease of client.leases) {
      if (!holders.has(lease.version)) holders.set(lease.version, []);
      holders.get(lease.version).push({client, lease});
    }
  }
  return holders;
}

function holder_table(state, version, holders) {
  if (!state.sees.clients) return h('p.quiet', null, 'This exporter may not see who holds it.');
  const missing = Math.max(0, version.leases - holders.length);
  const rest = missing ? h('p.quiet', null, `${count(missing, 'lease')} not listed: see gpuwmctl clients.`) : null;
  if (!holders.length) return rest || h('p.quiet', null, 'Nobody holds it.');
  return [table(`Who holds ${full(version.model, version.tag)}`, [
    ['process', ({client}) => [shown(client.command), client.name !== client.command ? h('span.quiet', null, ` ${shown(client.name)}`) : null]],
    ['pid', ({client}) => String(client.pid), true],
    ['uid', ({client}) => String(client.uid), true],
    ['device', ({lease}) => short_name(state, lease.device)],
    ['rank', ({lease}) => String(lease.rank), true],
    ['address', ({lease}) => shown(lease.address)],
    ['for', ({lease}) => span(state.time_ms - lease.since_ms), true],
    ['', ({lease}) => lease.revoked_ms ? pill('revoked', 'warn') : null],
  ].filter(([name]) => name !== 'address' || holders.some(({lease}) => lease.address)), holders, ({lease}) => `l${lease.lease}`), rest];
}

function facts(state, version) {
  return h('p.facts', null,
    h('span', null, `made ${span(state.time_ms - version.created_ms)} ago by ${version.by_operator ? 'an operator, ' : ''}uid ${version.owner_uid}`),
    h('span', null, count(version.tensors, 'tensor')),
    version.world > 1 ? h('span', null, count(version.world, 'rank')) : null,
    version.shared_bytes ? h('span', null, `${size(version.shared_bytes)} shared with other versions`) : null,
    version.source ? h('span.cut', null, `from ${shown(version.source)}`) : null,
    version.pins.length ? h('span', null, `pinned as ${version.pins.map(shown).join(', ')}`) : null,
    version.force_at_ms ? h('span', null, `leases end in ${span(version.force_at_ms - state.time_ms)}`) : null,
    h('span.mono', null, version.version));
}

function version_row(state, version, holders) {
  const names = state.aliases.filter((alias) => alias.version === version.version).map((alias) => alias.alias);
  const devices = [...new Set(version.parts.map((part) => part.device))];
  const wrong = version.error || version.tainted;
  return h('details.version', {'data-key': version.version},
    h('summary', null,
      h(`span.swatch${version.state === 'failed' ? '' : `.${color(version.version)}`}`),
      h('span.name', null, h('span', null, full(version.model, version.tag))),
      h('span.tags.state', null, version.tainted ? pill('damaged', 'bad') : pill(version.state, STATES[version.state]),
        names.map((name) => pill(shown(name), name === 'previous' ? '' : 'alias')),
        version.tier ? pill(`on ${version.tier}`, 'calm') : null,
        version.host_copy_bytes ? pill('and on host', 'calm') : null,
        version.moving ? pill(version.moving === 'device' ? 'promoting' : 'demoting', 'calm') : null,
        version.pins.length ? pill(count(version.pins.length, 'pin'), 'calm') : null),
      h('span.right.size', null, size(version.bytes)),
      h('span.cut.quiet.where', {title: devices.map(shown).join(', ')}, devices.length > 3 ? count(devices.length, 'device') : devices.map((d) => short_name(state, d)).join(', ')),
      h('span.right.who', null, version.leases ? count(version.leases, 'lease') : '–')),
    h('div.inside', null, wrong ? h('p.notice.bad', null, shown(wrong.message), wrong.detail ? ` (${shown(wrong.detail)})` : '') : null,
      facts(state, version), holder_table(state, version, holders)));
}

function more_button(text, on_click) {
  return h('div.more-row', {'data-key': 'more'}, h('button', {type: 'button', onclick: on_click}, text));
}

function show_versions(state, wanted) {
  const holders = holders_of(state);
  const found = state.versions.filter((v) => full(v.model, v.tag).toLowerCase().includes(wanted));
  const told = all_versions ? found : found.slice(0, VERSIONS_FIRST);
  const rest = state.left_out.versions;
  if (!found.length) {
    const none = rest ? `None of the listed versions has such a name. ${number(rest)} are not listed: see gpuwmctl ls.` : 'No version has such a name.';
    show('versions', empty(wanted ? none : 'No version yet. gpuwmctl load makes one.'));
    return;
  }
  show('versions', h('div.card.rows', null,
    told.map((version) => version_row(state, version, holders.get(version.version) || [])),
    found.length > told.length ? more_button(`Show all ${found.length}`, () => { all_versions = true; redraw(); }) : null,
    rest ? h('p.empty', {'data-key': 'left'}, `${count(rest, 'version')} not listed, which are smaller or have failed: see gpuwmctl ls.`) : null));
}
