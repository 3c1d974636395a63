/* What is done while a call fails. */
#include "round.h"
#include "tool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- start and stop --------------------------------------------------- */

static bool serves(struct stack *s)
{
	struct gpuwm_client *client;

	if (stack_operator(s, &client) < 0)
		return false;
	gpuwm_close(client);
	return true;
}

static void act_start(struct round *r)
{
	step_begin(r, "starting");
	stack_spawn(r->stack);
	if (!EVENTUALLY(LIMIT_MS, stack_ended(r->stack) || serves(r->stack)))
		round_fail(r, "it neither serves nor ends");
}

static void act_stop(struct round *r)
{
	step_begin(r, "stopping");
	kill(r->stack->keeper, SIGTERM);
	if (!EVENTUALLY(LIMIT_MS, stack_ended(r->stack)))
		round_fail(r, "the keeper does not end");
}

/* ---- making versions -------------------------------------------------- */

/* Whether the version is ready is as the answer said, unless the answer left it open. */
static void check_made(struct round *r, int code)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	bool ready;

	round_disarm(r);
	if (is_open(code) || stack_operator(r->stack, &client) < 0)
		return;
	ready = version_ready(client, "made");
	if (code < 0 && ready)
		round_fail(r, "the version is ready, though the answer was %d", code);
	if (code >= 0 && !ready)
		round_fail(r, "the version is not ready, though the answer was %d", code);
	if (code == 0 && !alias_names(client, "fresh", "made"))
		round_fail(r, "the alias was not moved, though the answer was 0");
	if (ready && gpuwm_attach(client, MODEL "@made", NULL, &mapping) == 0) {
		if (!content_is(mapping, CONTENT_TWO))
			round_fail(r, "the version has wrong bytes");
		gpuwm_detach(mapping);
	}
	gpuwm_close(client);
}

static int load_begin(const struct stack *s, struct gpuwm_client *client, uint64_t *ret_job)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);

	options.source = stack_source(s, CONTENT_TWO);
	options.name = MODEL "@made";
	options.alias = "fresh";
	return gpuwm_load(client, &options, ret_job);
}

/* A wait that is refused says nothing about the job: it is asked for again without a fault. */
static int wait_again(struct round *r, uint64_t job)
{
	struct gpuwm_client *client;
	int code = -ECONNABORTED;

	round_disarm(r);
	if (stack_operator(r->stack, &client) == 0) {
		step_begin(r, "waiting for the job again");
		code = gpuwm_job_wait(client, job, LIMIT_MS);
		alarm(0);
		gpuwm_close(client);
	}
	return code;
}

static void act_load(struct round *r)
{
	struct gpuwm_client *client;
	uint64_t job;
	int code;

	if (STEP(r, stack_operator(r->stack, &client)) < 0)
		return;
	code = STEP(r, load_begin(r->stack, client, &job));
	if (code >= 0) {
		code = STEP(r, gpuwm_job_wait(client, job, LIMIT_MS));
		if (code < 0)
			code = wait_again(r, job);
	}
	gpuwm_close(client);
	check_made(r, code);
}

static int write_contents(struct gpuwm_publish *publish)
{
	static uint8_t bytes[CONTENT_TENSORS][16384];
	const uint64_t sizes[CONTENT_TENSORS] = {16384, 4096};
	int r = 0;

	for (size_t i = 0; r == 0 && i < CONTENT_TENSORS; i++) {
		for (uint64_t at = 0; at < sizes[i]; at++)
			bytes[i][at] = content_byte(CONTENT_TWO, i, at);
		r = gpuwm_publish_write(publish, i, 0, bytes[i], sizes[i]);
	}
	return r;
}

static int publish_made(struct gpuwm_client *client)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish;
	int r;

	options.name = MODEL "@made";
	options.device = "host";
	options.alias = "fresh";
	r = gpuwm_publish_begin(client, &options, content_specs, CONTENT_TENSORS, &publish);
	if (r < 0)
		return r;
	r = write_contents(publish);
	if (r < 0) {
		gpuwm_publish_abort(publish, "could not be written");
		return r;
	}
	return gpuwm_publish_commit(publish, NULL);
}

/* As an operator, who may move aliases of every model. */
static int publish_as_operator(struct round *r)
{
	struct gpuwm_client *client;
	int code = STEP(r, stack_operator(r->stack, &client));

	if (code < 0)
		return -ECONNREFUSED; /* it was not asked for */
	code = STEP(r, publish_made(client));
	gpuwm_close(client);
	return code;
}

/* What a child tells of its part of the round. */
struct told {
	int code;
	unsigned refused;
	bool failed;
	char why[sizeof(((struct round *)0)->why)];
};

static _Noreturn void child_run(struct round *r, int pipe)
{
	struct told told = {.code = publish_as_operator(r), .refused = r->refused, .failed = r->failed};

	memcpy(told.why, r->why, sizeof told.why);
	_exit(write(pipe, &told, sizeof told) == sizeof told ? 0 : EXIT_FAILURE);
}

/* In a process of its own: as long as a publisher lives whose publish failed, gpuwmd watches it, since it may still
 * have the memory. */
static void act_publish(struct round *r)
{
	struct told told = {.failed = true};
	int ends[2], status = 0;
	pid_t pid;

	if (pipe(ends) < 0 || (pid = fork()) < 0) {
		round_fail(r, "no process for the publisher: %s", strerror(errno));
		return;
	}
	if (pid == 0)
		child_run(r, ends[1]);
	close(ends[1]);
	if (read(ends[0], &told, sizeof told) != sizeof told)
		strcpy(told.why, "the publisher ended early");
	close(ends[0]);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_HUNG)
		_exit(EXIT_HUNG); /* the child has reported */
	r->refused += told.refused;
	if (told.failed)
		round_fail(r, "%s", told.why);
	else
		check_made(r, told.code);
}

/* ---- using them ------------------------------------------------------- */

static void act_attach(struct round *r)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	if (STEP(r, stack_worker(r->stack, &client)) < 0)
		return;
	if (STEP(r, gpuwm_attach(client, MODEL, NULL, &mapping)) >= 0) {
		if (!content_is(mapping, CONTENT_ONE))
			round_fail(r, "the version has wrong bytes");
		STEP(r, gpuwm_switch(mapping, MODEL "@two", NULL));
		STEP(r, gpuwm_detach(mapping));
	}
	STEP(r, gpuwm_ping(client, NULL));
	gpuwm_close(client);
}

/* What the registry has is what the answers of a change said. */
static void check_change(struct round *r, const char *what, int code, bool is, bool before, bool after)
{
	if (is_open(code))
		return;
	if (code >= 0 && is != after)
		round_fail(r, "%s: not done, though the answer was 0", what);
	if (code < 0 && is != before)
		round_fail(r, "%s: done, though the answer was %d", what, code);
}

/* One change a round is looked at: a failed call strikes one of them. */
static void act_operate(struct round *r)
{
	struct gpuwm_client *client, *looking;
	int pin, swapped, unpin = 0, removed = 0;
	bool pinned, moved, still_pinned = false, still_there = false;

	if (STEP(r, stack_operator(r->stack, &client)) < 0)
		return;
	pin = STEP(r, gpuwm_pin(client, MODEL "@one", "round"));
	swapped = STEP(r, swap_alias(client, "fresh", "two"));
	json_decref(ask(client, "clients"));
	if (pin >= 0)
		unpin = STEP(r, gpuwm_unpin(client, MODEL "@one", "round"));
	if (swapped >= 0)
		removed = STEP(r, swap_alias(client, "fresh", NULL));
	gpuwm_close(client);
	round_disarm(r);
	if (stack_operator(r->stack, &looking) < 0)
		return;
	pinned = pin_is_there(looking, "one", "round");
	moved = alias_names(looking, "fresh", "two");
	gpuwm_close(looking);
	if (pin < 0)
		check_change(r, "pin", pin, pinned, false, true);
	else
		still_pinned = pinned;
	if (swapped < 0)
		check_change(r, "swap", swapped, moved, false, true);
	else
		still_there = moved;
	if (pin >= 0)
		check_change(r, "unpin", unpin, still_pinned, true, false);
	if (swapped >= 0)
		check_change(r, "removal", removed, still_there, true, false);
}

/* A version of its own, so that what is freed can be told. */
static void act_retire(struct round *r)
{
	struct gpuwm_client *client;
	int code;

	if (STEP(r, stack_operator(r->stack, &client)) < 0)
		return;
	if (STEP(r, load_named(r->stack, client, CONTENT_ONE, MODEL "@made")) >= 0) {
		code = STEP(r, gpuwm_retire(client, MODEL "@made", LIMIT_MS));
		round_disarm(r);
		if (code >= 0 && version_ready(client, "made"))
			round_fail(r, "retire: not done, though the answer was 0");
	}
	gpuwm_close(client);
}

/* ---- a restart -------------------------------------------------------- */

static pid_t gpuwmd_of(struct gpuwm_client *client)
{
	json_t *status = ask(client, "status");
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	return pid;
}

static bool next_serves(const struct stack *s, pid_t last)
{
	struct gpuwm_client *client;
	pid_t pid;

	if (stack_operator(s, &client) < 0)
		return false;
	pid = gpuwmd_of(client);
	gpuwm_close(client);
	return pid > 0 && pid != last;
}

static bool lease_is_back(const struct gpuwm_mapping *mapping)
{
	return gpuwm_mapping_check(mapping) == 0;
}

/* gpuwmd ends while a worker holds a version: the worker has its lease again. */
static void restart_by(struct round *r, void (*strike)(const struct stack *, pid_t))
{
	struct gpuwm_client *client, *worker;
	struct gpuwm_mapping *mapping;
	pid_t pid;

	if (STEP(r, stack_operator(r->stack, &client)) < 0)
		return;
	pid = gpuwmd_of(client);
	gpuwm_close(client);
	if (STEP(r, stack_worker(r->stack, &worker)) < 0)
		return;
	if (pid <= 0 || STEP(r, gpuwm_attach(worker, MODEL, NULL, &mapping)) < 0) {
		gpuwm_close(worker);
		return;
	}
	step_begin(r, "restarting");
	strike(r->stack, pid);
	if (!EVENTUALLY(LIMIT_MS, next_serves(r->stack, pid)))
		round_fail(r, "no gpuwmd comes after the one that ended");
	step_begin(r, "resuming");
	if (!r->failed && !EVENTUALLY(LIMIT_MS, lease_is_back(mapping)))
		round_fail(r, "the lease does not come back: %s", gpuwm_error()->message);
	if (!content_is(mapping, CONTENT_ONE))
		round_fail(r, "the version has wrong bytes");
	alarm(0);
	gpuwm_detach(mapping);
	gpuwm_close(worker);
}

static void strike_kill(const struct stack *s, pid_t gpuwmd)
{
	(void)s;
	kill(gpuwmd, SIGKILL);
}

static void strike_upgrade(const struct stack *s, pid_t gpuwmd)
{
	(void)gpuwmd;
	kill(s->keeper, SIGUSR1);
}

static void act_restart(struct round *r)
{
	restart_by(r, strike_kill);
}

static void act_upgrade(struct round *r)
{
	restart_by(r, strike_upgrade);
}

/* ---- what is left ----------------------------------------------------- */

static int verify_all(struct gpuwm_client *client)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count = 0;
	int r = gpuwm_verify(client, MODEL, NULL, jobs, &count);

	for (size_t i = 0; r >= 0 && i < count; i++)
		r = gpuwm_job_wait(client, jobs[i], LIMIT_MS);
	return r;
}

static void act_verify(struct round *r)
{
	struct gpuwm_client *client;

	if (STEP(r, stack_operator(r->stack, &client)) < 0)
		return;
	STEP(r, verify_all(client));
	gpuwm_close(client);
}

/* Its end, and whether the configuration was taken, is in the log. */
static bool has_reloaded(const struct stack *s)
{
	char *said = stack_said(s);
	bool has = said && (strstr(said, "the configuration was read again") ||
			    strstr(said, "the old configuration stays"));

	free(said);
	return has;
}

static void act_reload(struct round *r)
{
	step_begin(r, "reloading");
	kill(r->stack->keeper, SIGHUP);
	if (!EVENTUALLY(LIMIT_MS, has_reloaded(r->stack)))
		round_fail(r, "nothing says whether the configuration was read");
}

#define WORDS(...)                                                                                             \
	(const char *const[])                                                                                  \
	{                                                                                                      \
		__VA_ARGS__, NULL                                                                              \
	}
#define COMMAND(name_, says_, after_, ...)                                                                     \
	{                                                                                                      \
		name_, .act = act_command, .words = WORDS("gpuwmctl", __VA_ARGS__), .of = PROGRAM_CTL,         \
		       .says = (says_), .after = (after_)                                                      \
	}
#define SERVICE(name_, of_, act_, ...)                                                                         \
	{                                                                                                      \
		name_, .act = (act_), .words = WORDS(__VA_ARGS__), .of = (of_)                                 \
	}

const struct scenario scenarios[] = {
	{"start", .from_down = true, .act = act_start},
	{"load", .act = act_load},
	{"attach", .act = act_attach},
	{"operate", .act = act_operate},
	{"retire", .act = act_retire},
	{"publish", .act = act_publish},
	{"verify", .act = act_verify},
	{"reload", .act = act_reload},
	{"restart", .act = act_restart},
	{"upgrade", .act = act_upgrade},
	{"stop", .to_down = true, .act = act_stop},
	COMMAND("ctl-status", "holds ", NULL, "status"),
	COMMAND("ctl-ls", MODEL "@two", NULL, "ls"),
	COMMAND("ctl-json", "\"tag\":\"two\"", NULL, "ls", "-o", "json"),
	COMMAND("ctl-show", MODEL "@one", NULL, "show", MODEL "@one"),
	COMMAND("ctl-verify", MODEL "@one", NULL, "verify", MODEL "@one"),
	COMMAND("ctl-load", "", after_load, "load", WORD_SOURCE, MODEL "@made", "--alias", "fresh", "--wait"),
	COMMAND("ctl-save", "", after_save, "save", MODEL "@two", WORD_SAVED),
	COMMAND("ctl-pin", "", after_pin, "pin", MODEL "@one", "round"),
	COMMAND("ctl-swap", "", after_swap, "swap", MODEL, "two"),
	SERVICE("exporter", PROGRAM_EXPORTER, act_exporter, "gpuwm-exporter", "--listen", "127.0.0.1:0",
		"--no-token", "--socket", WORD_SOCKET),
	SERVICE("follow", PROGRAM_FOLLOW, act_follow, "gpuwm-follow", "--backend", MODEL "=workers", "--exec",
		WORD_HOOK, "--exec-retry", "1", "--keep", "0.001", "--socket", WORD_ADMIN),
	SERVICE("peer", PROGRAM_PEER, act_peer, "gpuwm-peer", "--config", WORD_CONFIG, "--socket", WORD_SOCKET),
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];
