/* Who dies in the storm of kills, and how. */
#include "kills_storm.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Until another one serves. One look may take half a minute: so long a client waits for an answer, in the queue of a gpuwmd that dies. */
#define BACK_MS 90000
/* Between an operation and the strike, at most: amid a load, or after one, so that there is something to lose. */
#define STRIKE_US 30000
#define CALM_US 400000
#define CALM_PERCENT 30
#define MIDDLE_US 150000 /* of a succession: to begin it takes some 20 ms, and to take over as long again */

/* ---- gpuwm-peer ------------------------------------------------------------------- */

static void peer_run(const struct kills_storm *s)
{
	char program[256];
	int log = open(s->peer_log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	snprintf(program, sizeof program, "%s/bin/gpuwm-peer", build_path());
	execl(program, "gpuwm-peer", "--config", s->peer_config, "--socket", s->storm.d->socket, NULL);
	_exit(127);
}

/* 0: it has not said it yet. */
static unsigned port_said(const struct kills_storm *s)
{
	FILE *file = fopen(s->peer_log, "re");
	const char *said;
	unsigned port = 0;
	char line[512];

	while (file && port == 0 && fgets(line, sizeof line, file)) {
		said = strstr(line, "(port ");
		port = said ? (unsigned)strtoul(said + 6, NULL, 10) : 0;
	}
	if (file)
		fclose(file);
	return port;
}

/* It keeps the port that the first one got: actors go on to take from there. */
void kills_peer_start(struct kills_storm *s)
{
	FILE *file = fopen(s->peer_config, "we");

	cr_assert(file);
	fprintf(file, "[peers]\nsecret = %s/secret\nlisten = 127.0.0.1:%u\n", own_folder(), s->world->port);
	cr_assert(fclose(file) == 0);
	s->peer = fork();
	if (s->peer == 0)
		peer_run(s);
	cr_assert(s->world->port || EVENTUALLY(BACK_MS, (s->world->port = port_said(s)) > 0),
		  "gpuwm-peer does not serve");
}

void kills_peer_kill(struct kills_storm *s)
{
	int status;

	cr_assert(kill(s->peer, SIGKILL) == 0 && waitpid(s->peer, &status, 0) == s->peer);
	cr_assert(WIFSIGNALED(status), "gpuwm-peer has left with %#x: see %s", status, s->peer_log);
	s->peer_kills++;
}

/* ---- gpuwmd and its loaders -------------------------------------------------------- */

void kills_serves(struct kills_storm *s)
{
	struct gpuwmd *d = s->storm.d;

	d->instance[0] = 0; /* any will do */
	cr_assert(EVENTUALLY(BACK_MS, kept_next_is_there(d)), "nobody serves: %s", gpuwm_error()->message);
}

/* It may have ended meanwhile. */
static void gpuwmd_kill(struct kills_storm *s, int signal_number)
{
	kills_serves(s);
	kill(s->storm.d->pid, signal_number);
	s->storm.gpuwmd_kills += signal_number == SIGKILL;
	s->storm.stops += signal_number != SIGKILL;
}

static void loader_kill(struct kills_storm *s)
{
	pid_t loaders[CHILDREN_MAX];
	size_t count;

	kills_serves(s);
	count = loaders_of(s->storm.d->pid, loaders);
	if (count > 0 && kill(loaders[dice_throw(&s->storm.dice, count)], SIGKILL) == 0)
		s->loader_kills++;
}

/* ---- keepers ------------------------------------------------------------------------- */

/* The memory of all versions and regions goes. What is described comes back. */
static void keeper_kill(struct kills_storm *s)
{
	kills_serves(s);
	kills_note_lasting(s);
	atomic_fetch_add(&s->world->era, 1);
	keeper_restart(s->storm.d, &s->how);
	s->keeper_kills++;
}

static bool has_ended(pid_t pid)
{
	int status;

	return waitpid(pid, &status, WNOHANG) == pid;
}

static pid_t parent_of(pid_t pid)
{
	char path[32];
	pid_t parent = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	return parent;
}

static bool serves_below(struct kills_storm *s, pid_t keeper)
{
	s->storm.d->instance[0] = 0;
	return kept_next_is_there(s->storm.d) && parent_of(s->storm.d->pid) == keeper;
}

/* The new keeper dies. The old one goes on with everything, unless it has given all of it away and ends. */
static void new_keeper_dies(struct kills_storm *s, pid_t old)
{
	struct gpuwmd *d = s->storm.d;
	bool ended = false;

	atomic_fetch_add(&s->world->era, 1); /* before it happens: an actor may notice at once */
	cr_assert(kill(d->keeper, SIGKILL) == 0 && waitpid(d->keeper, NULL, 0) == d->keeper);
	s->keeper_kills++;
	cr_assert(EVENTUALLY(BACK_MS, (ended = has_ended(old)) || serves_below(s, old)),
		  "neither keeper has the store");
	if (ended) {
		keeper_succeed(d, &s->how);
		return;
	}
	d->keeper = old;
	atomic_fetch_sub(&s->world->era, 1); /* so nothing may be lost */
}

#define HAS_LET_GO "belong to the other keeper now"

/* The old keeper dies. The new one goes on with everything that the old one has let go. */
static void old_keeper_dies(struct kills_storm *s, pid_t old, size_t let_go)
{
	atomic_fetch_add(&s->world->era, 1);
	kill(old, SIGKILL); /* it may have ended */
	cr_assert(waitpid(old, NULL, 0) == old);
	s->keeper_kills++;
	if (log_count(s->storm.d, HAS_LET_GO) > let_go)
		atomic_fetch_sub(&s->world->era, 1);
}

/* Another keeper takes over, and one of the two may die in the middle. */
static void succession(struct kills_storm *s)
{
	const uint64_t throw = dice_throw(&s->storm.dice, 100),
		       middle_us = dice_throw(&s->storm.dice, MIDDLE_US);
	size_t let_go;
	pid_t old;

	kills_serves(s);
	kills_note_lasting(s);
	let_go = log_count(s->storm.d, HAS_LET_GO);
	old = keeper_succeed(s->storm.d, &s->how);
	s->successions++;
	if (throw < 70)
		pause_us(middle_us);
	if (throw < 35)
		new_keeper_dies(s, old);
	else if (throw < 70)
		old_keeper_dies(s, old, let_go);
	else
		cr_assert(EVENTUALLY(BACK_MS, has_ended(old)), "the old keeper does not let go");
}

void kills_upgrade(struct kills_storm *s)
{
	static char program[512];
	pid_t old;

	snprintf(program, sizeof program, "%s/tests/next/gpuwmd", build_path());
	s->how.program = program;
	kills_serves(s);
	old = keeper_succeed(s->storm.d, &s->how);
	cr_assert(EVENTUALLY(BACK_MS, has_ended(old)), "the old keeper does not let go");
	kills_serves(s);
	s->upgrades++;
}

/* ---- dice -------------------------------------------------------------------------------- */

static void actor_kill(struct kills_storm *s)
{
	const unsigned actor = (unsigned)dice_throw(&s->storm.dice, KILLS_ACTORS);

	storm_actor_kill(&s->storm, actor);
	storm_actor_start(&s->storm, actor);
}

static void peer_again(struct kills_storm *s)
{
	kills_peer_kill(s);
	kills_peer_start(s);
}

static void gpuwmd_dies(struct kills_storm *s)
{
	gpuwmd_kill(s, SIGKILL);
}

static void gpuwmd_stops(struct kills_storm *s)
{
	gpuwmd_kill(s, SIGTERM);
}

/* The keeper's way to upgrade gpuwmd alone. */
static void gpuwmd_again(struct kills_storm *s)
{
	kills_serves(s);
	cr_assert(kill(s->storm.d->keeper, SIGUSR1) == 0);
	s->upgrades++;
}

void kills_strike(struct storm *storm)
{
	static void (*const strikes[])(struct kills_storm *) = {gpuwmd_dies,  loader_kill, actor_kill,
								peer_again,   keeper_kill, succession,
								gpuwmd_stops, gpuwmd_again};
	static const unsigned often[] = {36, 22, 20, 9, 3, 5, 2, 3};
	struct kills_storm *s = (struct kills_storm *)storm;

	pause_us(dice_throw(&storm->dice, dice_percent(&storm->dice, CALM_PERCENT) ? CALM_US : STRIKE_US));
	strikes[storm_choose(&storm->dice, often, sizeof often / sizeof often[0])](s);
}

uint64_t kills_count(const struct kills_storm *s)
{
	return (uint64_t)s->storm.kills + s->storm.gpuwmd_kills + s->loader_kills + s->peer_kills +
	       s->keeper_kills;
}
