#include "round.h"

#include "figures.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void round_fail(struct round *r, const char *format, ...)
{
	va_list list;

	if (r->failed)
		return;
	r->failed = true;
	va_start(list, format);
	vsnprintf(r->why, sizeof r->why, format, list);
	va_end(list);
}

/* ---- steps ------------------------------------------------------------ */

void step_begin(struct round *r, const char *name)
{
	r->step = name;
	alarm(STEP_SECONDS);
}

/* Codes that would be wrong here: everything that is asked for is there, undamaged, and allowed. */
static bool is_lie(int code)
{
	static const int lies[] = {ENOENT, ESTALE, EBADMSG, EUCLEAN, EINVAL, EPROTO,  ENOSYS,
				   EEXIST, EBUSY,  EACCES,  ENODEV,  EFBIG,  ENOTSUP, EKEYREJECTED};

	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		if (code == -lies[i])
			return true;
	}
	return false;
}

int step_end(struct round *r, int code)
{
	const struct gpuwm_error *error = gpuwm_error();

	alarm(0);
	if (code >= 0)
		return code;
	r->refused++;
	if (!error->message[0])
		round_fail(r, "%s: %s without a message", r->step, error->name);
	else if (is_lie(code))
		round_fail(r, "%s: an answer that is not so: %s: %s (%s)", r->step, error->name, error->message,
			   error->detail);
	return code;
}

bool is_open(int code)
{
	return code == -ECONNABORTED || code == -ECONNREFUSED || code == -ECONNRESET;
}

/* ---- without faults --------------------------------------------------- */

/* What must work when no call fails. */
#define MUST(r, call)                                                                                          \
	({                                                                                                     \
		int must_;                                                                                     \
		step_begin(r, #call);                                                                          \
		must_ = (call);                                                                                \
		alarm(0);                                                                                      \
		if (must_ < 0)                                                                                 \
			round_fail(r, "without a fault, %s: %s (%s)", #call, gpuwm_error()->message,           \
				   gpuwm_error()->detail);                                                     \
		must_ >= 0;                                                                                    \
	})

static bool read_version(struct round *r, struct gpuwm_client *client, const char *ref, unsigned content)
{
	struct gpuwm_mapping *mapping;

	if (!MUST(r, gpuwm_attach(client, ref, NULL, &mapping)))
		return false;
	if (!content_is(mapping, content))
		round_fail(r, "%s has wrong bytes", ref);
	gpuwm_detach(mapping);
	return !r->failed;
}

static bool fill(struct round *r, struct gpuwm_client *client)
{
	return MUST(r, load_named(r->stack, client, CONTENT_ONE, MODEL "@one")) &&
	       MUST(r, load_named(r->stack, client, CONTENT_TWO, MODEL "@two")) &&
	       MUST(r, gpuwm_pin(client, MODEL "@one", "keep"));
}

/* With a loader that stands by: without one a load is refused, and gpuwmd says why. */
static bool is_ready(struct stack *s)
{
	struct gpuwm_client *client;
	json_t *status;
	bool ready;

	if (stack_operator(s, &client) < 0)
		return false;
	status = ask(client, "status");
	ready = number_of(status, "standby") == 1;
	json_decref(status);
	gpuwm_close(client);
	return ready;
}

bool round_up(struct round *r)
{
	struct gpuwm_client *client = NULL;

	if (r->stack->keeper > 0 && r->stack->filled)
		return true;
	if (r->stack->keeper == 0)
		stack_spawn(r->stack);
	if (!EVENTUALLY(LIMIT_MS, is_ready(r->stack)) || !MUST(r, stack_operator(r->stack, &client)) ||
	    !fill(r, client))
		round_fail(r, "without a fault, nothing serves");
	gpuwm_close(client);
	r->stack->filled = !r->failed;
	return r->stack->filled;
}

/* A load whose answer was lost goes on. */
static bool is_quiet(struct gpuwm_client *client)
{
	json_t *list = ask(client, "list"), *entry;
	bool quiet = true;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		const char *state = text_of(entry, "state");

		quiet &= strcmp(state, "building") != 0 && strcmp(state, "checking") != 0;
	}
	json_decref(list);
	return quiet;
}

/* What clients may have left for the moment: all but the two versions that stay. */
static void sweep(struct gpuwm_client *client)
{
	json_t *list, *entry;
	size_t i;

	(void)EVENTUALLY(LIMIT_MS, is_quiet(client));
	list = ask(client, "list");
	swap_alias(client, "current", "one");
	json_array_foreach(json_object_get(list, "aliases"), i, entry) {
		if (strcmp(text_of(entry, "alias"), "current") != 0 &&
		    strcmp(text_of(entry, "alias"), "previous") != 0)
			swap_alias(client, text_of(entry, "alias"), NULL);
	}
	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		const char *tag = text_of(entry, "tag");

		if (strcmp(tag, "one") == 0)
			gpuwm_unpin(client, MODEL "@one", "round");
		else if (strcmp(tag, "two") != 0 && strcmp(text_of(entry, "state"), "ready") == 0)
			gpuwm_retire_by_force(client, text_of(entry, "version"), 0, LIMIT_MS);
	}
	json_decref(list);
}

/* ---- afterwards ------------------------------------------------------- */

static bool said_why(const char *said, enum program program)
{
	char words[32];

	snprintf(words, sizeof words,
		 program == PROGRAM_LOADER || program == PROGRAM_CTL ? "%s: " : "%s: error: ",
		 program_name(program));
	return strstr(said, words);
}

static void check_crashes(struct round *r, const char *said)
{
	struct control *c = r->stack->control;

	for (unsigned i = 0; i < c->crashes && i < CRASHES_MAX; i++) {
		if (c->crash[i].signal == SIGABRT && said_why(said, c->crash[i].program))
			continue;
		round_fail(r, "%s ended by signal %d and did not say why", program_name(c->crash[i].program),
			   c->crash[i].signal);
		r->crash = &c->crash[i].where;
	}
}

/* Each end of gpuwmd that the keeper tells of, but a good one. True: there was one. */
static bool check_ends(struct round *r, const char *said)
{
	const char *line = said;
	bool ended = false;
	int status;

	for (; (line = strstr(line, "gpuwmd ended with status ")); line++) {
		status = atoi(line + strlen("gpuwmd ended with status "));
		ended |= status != 0;
		if (status != 0 && !said_why(said, PROGRAM_GPUWMD) && !said_why(said, PROGRAM_KEEPER))
			round_fail(r, "gpuwmd ended with status %d and did not say why", status);
	}
	return ended || strstr(said, "gpuwmd was ended by signal 6") ||
	       strstr(said, "gpuwmd was ended by signal 11");
}

/* The keeper is to end only where nothing was loaded, or where it was told to. True: it ended, and not well. */
static bool check_keeper(struct round *r, const char *said)
{
	int status;

	if (!stack_ended(r->stack))
		return false;
	status = r->stack->status;
	if (!r->scenario->from_down && !r->scenario->to_down)
		round_fail(r, "the keeper ended, and all versions with it");
	else if (WIFSIGNALED(status))
		round_fail(r, "the keeper was ended by signal %d", WTERMSIG(status));
	else if (status != 0 && !said_why(said, PROGRAM_KEEPER) && !said_why(said, PROGRAM_GPUWMD))
		round_fail(r, "the keeper ended with status %d and did not say why", WEXITSTATUS(status));
	else if (status == 0 && !r->scenario->to_down)
		round_fail(r, "the keeper ended with status 0, though nobody told it to");
	return status != 0;
}

/* Files that could not be removed stay. */
bool leaves_files(const struct fault *fault)
{
	return fault &&
	       (fault->call == CALL_UNLINK || fault->call == CALL_RMDIR || fault->call == CALL_UNLINKAT);
}

/* Of the first idle stack of this process. */
static struct figures idle_base;

static bool is_idle(const struct round *r, char *ret_why, size_t size)
{
	struct figures figures;

	if (!figures_take(&figures, r->stack))
		return false;
	if (leaves_files(r->fault))
		figures.of[FIGURE_FILES] = idle_base.of[FIGURE_FILES];
	return figures_equal(&figures, &idle_base, ret_why, size);
}

static void check_idle(struct round *r)
{
	char why[512] = "nobody answers";

	step_begin(r, "waiting until it is idle");
	if (!EVENTUALLY(LIMIT_MS, is_idle(r, why, sizeof why)))
		round_fail(r, "something is left over: %s", why);
	alarm(0);
}

static void check_registry(struct round *r, struct gpuwm_client *client)
{
	json_t *status = ask(client, "status");

	if (number_of(status, "lost") > 0)
		round_fail(r, "%ju versions were lost", number_of(status, "lost"));
	json_decref(status);
	if (!version_ready(client, "one") || !version_ready(client, "two"))
		round_fail(r, "a version is not there any more");
	if (any_is_tainted(client))
		round_fail(r, "a version is tainted, though its bytes are right");
	if (!alias_names(client, "current", "one"))
		round_fail(r, "the alias is not there any more");
	if (!pin_is_there(client, "one", "keep"))
		round_fail(r, "the pin is not there any more");
}

/* The round without a fault, which gpuwmd or the next one must stand. */
static void check_works(struct round *r)
{
	struct gpuwm_client *client;

	if (!EVENTUALLY(LIMIT_MS, is_ready(r->stack))) {
		round_fail(r, "nobody serves afterwards");
		return;
	}
	if (!MUST(r, stack_operator(r->stack, &client)))
		return;
	sweep(client);
	check_registry(r, client);
	if (read_version(r, client, MODEL, CONTENT_ONE) && read_version(r, client, MODEL "@two", CONTENT_TWO) &&
	    MUST(r, load_named(r->stack, client, CONTENT_TWO, MODEL "@after")) &&
	    read_version(r, client, MODEL "@after", CONTENT_TWO) &&
	    MUST(r, swap_alias(client, "current", "after")) && MUST(r, swap_alias(client, "current", "one")) &&
	    MUST(r, gpuwm_retire(client, MODEL "@after", LIMIT_MS)))
		sweep(client);
	gpuwm_close(client);
}

/* ---- the round -------------------------------------------------------- */

static void down(struct round *r)
{
	if (r->stack->keeper == 0)
		return;
	kill(r->stack->keeper, SIGTERM);
	if (!EVENTUALLY(LIMIT_MS, stack_ended(r->stack)))
		round_fail(r, "without a fault, the keeper does not end");
	else if (r->stack->status != 0)
		round_fail(r, "without a fault, the keeper ended with status %#x", (unsigned)r->stack->status);
}

bool round_begin(struct round *r)
{
	if (!round_up(r))
		return false;
	step_begin(r, "waiting until it is idle");
	if (!EVENTUALLY(LIMIT_MS, figures_take(&idle_base, r->stack) && figures_idle(&idle_base)))
		round_fail(r, "without a fault, it does not become idle");
	alarm(0);
	return !r->failed;
}

static void arm(struct round *r)
{
	struct control *c = r->stack->control;
	char *said = stack_said(r->stack);

	r->stack->log_from += (long)strlen(said ? said : "");
	free(said);
	c->crashes = 0;
	c->seen = 0;
	c->struck = false;
	memset(c->counts, 0, sizeof c->counts);
	atomic_store(&c->counting, true);
	if (!r->fault)
		return;
	c->program = r->program;
	c->call = r->fault->call;
	c->error = r->fault->error;
	c->kinds = r->fault->kinds;
	c->number = r->number;
	atomic_store(&c->armed, true);
}

void round_disarm(struct round *r)
{
	atomic_store(&r->stack->control->armed, false);
	atomic_store(&r->stack->control->counting, false);
}

static enum round_end judge(struct round *r, bool ended)
{
	if (r->failed)
		return ROUND_FAILED;
	if (ended)
		return ROUND_ENDED;
	return r->refused > 0 ? ROUND_REFUSED : ROUND_RIGHT;
}

enum round_end round_run(struct round *r, bool *ret_struck)
{
	struct control *c = r->stack->control;
	bool ended = false;
	char *said;

	*ret_struck = false;
	if (!(r->scenario->from_down ? (down(r), !r->failed) : round_up(r)))
		return ROUND_FAILED;
	arm(r);
	r->scenario->act(r);
	alarm(0);
	round_disarm(r);
	*ret_struck = c->struck;
	memcpy(r->counts, c->counts, sizeof r->counts);
	said = stack_said(r->stack);
	if (said) {
		ended = check_keeper(r, said);
		ended |= check_ends(r, said);
	}
	if (!EVENTUALLY(LIMIT_MS, r->stack->keeper > 0 || stack_strays() == 0))
		round_fail(r, "%u processes outlive the keeper", stack_strays());
	if (round_up(r)) {
		check_works(r);
		check_idle(r);
	}
	if (said)
		check_crashes(r, said);
	free(said);
	return judge(r, ended);
}
