// Regions and users.

function used_of(region) {
  return region.bytes_used === undefined || region.bytes_used === null ? '' : `${size(region.bytes_used)} in use`;
}

function show_regions(state) {
  document.getElementById('s-regions').hidden = !state.regions.length;
  show('regions', h('div.card', null, table('Regions', [
    ['region', (r) => [shown(r.name || r.region.slice(0, 8)), ' ', pill(r.kind), ' ', r.state === 'ready' ? null : pill(r.state, 'warn')]],
    ['device', (r) => short_name(state, r.device)],
    ['size', (r) => size(r.bytes), true],
    ['', (r) => h('span.quiet', null, used_of(r))],
    ['owner', (r) => `uid ${r.owner_uid}`],
    ['processes', (r) => r.users.map((u) => `${shown(u.command)} ${u.pid}`).join(', ') || '–'],
  ], state.regions, (r) => r.region), unlisted(state.left_out.regions, 'region', 'gpuwmctl regions')));
}

function show_users(state) {
  const counted = new Map(((state.counted || {}).users || []).map((user) => [user.uid, user]));
  const limits = state.status.limits || {};
  const fraction = (user, quota) => `${number(user[quota])}${limits[`${quota}_per_uid`] ? ` of ${number(limits[`${quota}_per_uid`])}` : ''}`;
  document.getElementById('s-users').hidden = !state.users.length;
  show('users', h('div.card', null, table('Users', [
    ['uid', (u) => String(u.uid)],
    ['connections', (u) => fraction(u, 'sessions'), true],
    ['leases', (u) => fraction(u, 'leases'), true],
    ['versions', (u) => fraction(u, 'versions'), true],
    ['memory charged', (u) => size(u.bytes), true],
    ['requests', (u) => (counted.has(u.uid) ? number(counted.get(u.uid).requests) : '–'), true],
    ['refused', (u) => (counted.has(u.uid) ? number(counted.get(u.uid).refused) : '–'), true],
    ['time of gpuwmd', (u) => (counted.has(u.uid) ? brief(counted.get(u.uid).busy_us) : '–'), true],
  ], state.users, (u) => `u${u.uid}`), unlisted(state.left_out.users, 'user', 'gpuwmctl clients')));
}
