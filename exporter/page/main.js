// Asks for the state every two seconds while the page is visible, and draws it.

const ASK_MS = 2000;
const ASK_WAIT_MS = 12000; // more than the exporter itself waits for gpuwmd
let last = null; // the last state in which gpuwmd answered
let failure = null; // why there is no newer one

// ---- the token: it is kept as long as the tab ----

let token = stored_token();
let token_said = ''; // what the exporter said about the last one

function stored_token() {
  try {
    return sessionStorage.getItem('token');
  } catch {
    return null; // the browser keeps nothing
  }
}

function use_token(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem('token', text);
    else sessionStorage.removeItem('token');
  } catch {
    // then it holds as long as the page
  }
}

function show_token_form() {
  const restricted = Boolean(last && last.restricted);
  document.getElementById('ask-token').hidden = !restricted;
  document.getElementById('main').classList.toggle('restricted', restricted);
  document.getElementById('token-said').textContent = token_said ||
    'These are totals. With the exporter\u2019s token the page shows models, workers and jobs. The file of --token-file has it: /etc/gpuwm/exporter.token if a package installed the exporter.';
}

const SECTIONS = ['summary', 'devices', 'versions', 'jobs', 'swaps', 'events', 'regions', 'users'];

// When gpuwmd was last seen, which the exporter knows also for a page that was opened later.
function last_seen() {
  const seen_ms = failure.seen_ms ?? (last ? last.at : null);
  if (seen_ms === null) return '';
  if (!seen_ms) return '. The exporter has not seen gpuwmd since it was started.';
  return `. gpuwmd was last seen ${span(Date.now() - seen_ms)} ago, at ${clock(seen_ms, Date.now())}${last ? '; what the page shows is from then' : ''}.`;
}

function redraw() {
  const pulse = document.getElementById('pulse');
  const text = failure ? (failure.gpuwmd ? 'gpuwmd does not answer' : 'the exporter does not answer') : last ? 'answering' : 'connecting';
  // A status that is written anew is read aloud anew.
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.className = `pulse ${failure ? 'bad' : last ? 'good' : ''}`;
  show('notices', failure ? notice('bad', 'failure', shown(failure.why), last_seen()) : null,
    last && !failure ? notices_of(last) : null);
  for (const id of SECTIONS) document.getElementById(id).classList.toggle('old', Boolean(failure));
  document.getElementById('main').classList.toggle('waiting', !last);
  show_token_form();
  if (!last) return;
  const wanted = document.getElementById('find').value.trim().toLowerCase();
  // Colors go by age, so that neighbours in a list differ.
  [...last.versions].sort((a, b) => a.created_ms - b.created_ms).forEach((version) => color(version.version));
  show_about(last);
  show_summary(last);
  show_devices(last);
  show_versions(last, wanted);
  show_jobs(last);
  show_swaps(last);
  show_events(last, wanted);
  show_regions(last);
  show_users(last);
}

let round = 0; // of the newest question: what answers an older one is out of date

async function ask(mine) {
  let found = null; // the state, or null
  let missed = null; // why there is none
  try {
    const headers = token ? {Authorization: `Bearer ${token}`} : {};
    const answer = await fetch('/api/state', {cache: 'no-store', headers, signal: AbortSignal.timeout(ASK_WAIT_MS)});
    if (answer.status === 401 && headers.Authorization) {
      const said = await answer.text();
      // The reader may have given another token since.
      if (mine !== round) return;
      token_said = said;
      use_token(null);
      await ask(mine);
      return;
    }
    if (!answer.ok) throw new Error(`the exporter answered ${answer.status}`);
    found = await answer.json();
    if (!found.up) missed = {gpuwmd: true, why: found.why, seen_ms: found.seen_ms};
  } catch (error) {
    missed = {gpuwmd: false, why: error.message};
  }
  if (mine !== round) return;
  failure = missed;
  if (!missed) last = Object.assign(found, {at: Date.now()});
  redraw();
}

let timer = 0;
async function go_on() {
  clearTimeout(timer);
  if (document.hidden) return;
  const mine = ++round;
  await ask(mine);
  if (mine === round) timer = setTimeout(go_on, ASK_MS);
}

// ---- light and dark ----

const THEMES = ['auto', 'light', 'dark'];
const is_dark = matchMedia('(prefers-color-scheme: dark)');

function stored_theme() {
  try {
    return localStorage.getItem('theme') || 'auto';
  } catch {
    return 'auto'; // the browser keeps nothing
  }
}

function use_theme(theme) {
  const dark = theme === 'dark' || (theme === 'auto' && is_dark.matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  document.getElementById('theme').textContent = `Theme: ${theme}`;
}

function next_theme() {
  const theme = THEMES[(THEMES.indexOf(stored_theme()) + 1) % THEMES.length];
  try {
    localStorage.setItem('theme', theme);
  } catch {
    // then it holds as long as the page
  }
  use_theme(theme);
}

use_theme(stored_theme());
is_dark.addEventListener('change', () => use_theme(stored_theme()));
document.getElementById('theme').addEventListener('click', next_theme);
document.getElementById('ask-token').addEventListener('submit', (event) => {
  const field = document.getElementById('token');
  event.preventDefault();
  token_said = '';
  use_token(field.value.trim() || null);
  field.value = '';
  go_on();
});
document.getElementById('find').addEventListener('input', redraw);
document.addEventListener('visibilitychange', go_on);
go_on();
