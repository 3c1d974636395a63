// Jobs, with their progress.

const JOB_STATES = {running: 'calm', queued: '', cancelling: 'warn', done: 'good', failed: 'bad', cancelled: 'warn'};
const ENDED_FIRST = 5; // jobs that went well are history: the last ones

function is_live(job) {
  return job.state === 'running' || job.state === 'queued' || job.state === 'cancelling';
}

function job_time(state, job) {
  if (job.state === 'queued') return `waits for ${span(state.time_ms - job.created_ms)}`;
  if (!job.ended_ms) return `for ${span(state.time_ms - (job.started_ms || job.created_ms))}`;
  return `took ${brief((job.ended_ms - (job.started_ms || job.created_ms)) * 1000)}, ${span(state.time_ms - job.ended_ms)} ago`;
}

function job_row(state, job) {
  const percent = job.total ? Math.min(100, job.done / job.total * 100) : 0;
  const name = `${job.kind} ${full(job.model, job.tag)}`;
  return h('li.job', {'data-key': `j${job.job}`},
    h('div.top', null,
      h('span.quiet', null, job.kind), h('span.name', null, full(job.model, job.tag)), pill(job.state, JOB_STATES[job.state]),
      h('span.quiet.name', null, is_live(job) ? shown(job.phase) : ''),
      h('span.quiet.push', null, is_live(job) && job.total ? `${size(job.done)} of ${size(job.total)}, ` : '', job_time(state, job))),
    is_live(job) && job.state !== 'queued'
      ? h('progress', {max: 100, value: job.total ? percent : null, 'aria-label': name}) : null,
    job.error ? h('p.notice.bad', null, shown(job.error.message), job.error.detail ? ` (${shown(job.error.detail)})` : '') : null);
}

// "3 queued, 995 done", of those that are not in the list
function jobs_unlisted(state, told) {
  return Object.entries(state.totals.jobs)
    .map(([name, all]) => [name, all - told.filter((job) => job.state === name).length])
    .filter(([, rest]) => rest > 0).map(([name, rest]) => `${number(rest)} ${name}`).join(', ');
}

function show_jobs(state) {
  const live = state.jobs.filter(is_live);
  const failed = state.jobs.filter((job) => job.state === 'failed').reverse();
  const ended = state.jobs.filter((job) => !is_live(job) && job.state !== 'failed').slice(-ENDED_FIRST).reverse();
  const told = [...live, ...failed, ...ended];
  if (!state.sees.jobs) show('jobs', empty('This exporter may not see jobs.'));
  else if (!told.length) show('jobs', empty('No job in the last hour.'));
  else {
    const rest = jobs_unlisted(state, told);
    show('jobs', h('ul.card.rows', null, told.map((job) => job_row(state, job)),
      rest ? h('li.empty', {'data-key': 'left'}, `Not listed: ${rest}. See gpuwmctl jobs.`) : null));
  }
}
