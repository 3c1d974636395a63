#include "round.h"

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
	alarm(LIMIT_MS / 1000);
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

/* ---- what the registry has -------------------------------------------- */

json_t *ask(struct gpuwm_client *client, const char *method)
{
	json_t *answer;
	char *text;

	if (gpuwm_query(client, method, NULL, &text) < 0)
		return NULL;
	answer = json_loads(text, 0, NULL);
	free(text);
	return answer;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The entry of `list`, whose answer the caller drops. */
static json_t *find_version(json_t *list, const char *tag)
{
	json_t *entry, *found = NULL;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		if (strcmp(text_of(entry, "tag"), tag) == 0)
			found = entry; /* a failed one comes before its successor */
	}
	return found;
}

bool version_ready(struct gpuwm_client *client, const char *tag)
{
	json_t *list = ask(client, "list");
	bool ready = strcmp(text_of(find_version(list, tag), "state"), "ready") == 0;

	json_decref(list);
	return ready;
}

static bool any_is_tainted(struct gpuwm_client *client)
{
	json_t *list = ask(client, "list"), *entry;
	bool tainted = false;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, entry)
		tainted |= json_object_get(entry, "tainted") != NULL;
	json_decref(list);
	return tainted;
}

bool alias_names(struct gpuwm_client *client, const char *alias, const char *tag)
{
	json_t *list = ask(client, "list"), *entry;
	const char *id = text_of(find_version(list, tag), "version");
	bool names = false;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, entry)
		names |= strcmp(text_of(entry, "alias"), alias) == 0 &&
			 strcmp(text_of(entry, "version"), id) == 0;
	json_decref(list);
	return names;
}

bool pin_is_there(struct gpuwm_client *client, const char *tag, const char *pin)
{
	json_t *list = ask(client, "list"), *entry;
	bool there = false;
	size_t i;

	json_array_foreach(json_object_get(find_version(list, tag), "pins"), i, entry) {
		const char *name = json_is_string(entry) ? json_string_value(entry) : text_of(entry, "pin");

		there |= strcmp(name, pin) == 0;
	}
	json_decref(list);
	return there;
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

int load_named(const struct stack *s, struct gpuwm_client *client, unsigned content, const char *name)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;
	int r;

	options.source = stack_source(s, content);
	options.name = name;
	r = gpuwm_load(client, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(client, job, LIMIT_MS);
}

int swap_alias(struct gpuwm_client *client, const char *alias, const char *to)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = MODEL;
	options.alias = alias;
	options.to = to;
	return gpuwm_swap(client, &options, NULL);
}

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

static uint64_t number_of(const json_t *status, const char *key)
{
	const json_t *value = json_object_get(status, key);

	return json_is_boolean(value) ? json_is_true(value) : (uint64_t)json_integer_value(value);
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

/* What clients may have left for the moment: all but the two versions that stay. */
static void sweep(struct gpuwm_client *client)
{
	json_t *list = ask(client, "list"), *entry;
	size_t i;

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
		 program == PROGRAM_LOADER ? "%s: " : "%s: error: ", program_name(program));
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

/* Descriptors of versions: an index and its segments a part. */
static size_t fds_held(const json_t *list)
{
	json_t *entry, *part;
	size_t i, j, count = 0;

	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		json_array_foreach(json_object_get(entry, "parts"), j, part) {
			const char *state = text_of(part, "state");

			if (state[0] && strcmp(state, "failed") != 0)
				count += 1 + (size_t)json_integer_value(json_object_get(part, "segments"));
		}
	}
	return count;
}

/* Of an idle stack, without the descriptors of versions: round_begin's. */
static struct {
	size_t gpuwmd, keeper;
	unsigned files;
	bool known;
} idle_base;

/* Files that could not be removed stay. */
bool leaves_files(const struct fault *fault)
{
	return fault && (fault->call == CALL_UNLINK || fault->call == CALL_RMDIR);
}

static bool is_idle(struct round *r, struct gpuwm_client *client, char *ret_why, size_t size)
{
	json_t *status = ask(client, "status"), *list = ask(client, "list");
	pid_t gpuwmd = (pid_t)number_of(status, "pid");
	size_t held = fds_held(list), own = process_fds(gpuwmd) - held;
	size_t keeper = process_fds(r->stack->keeper) - held;
	unsigned files = stack_files(r->stack);
	bool idle = status && list && number_of(status, "leases") == 0 && number_of(status, "publishes") == 0 &&
		    number_of(status, "waiting") == 0 && number_of(status, "sessions") == 1 &&
		    number_of(status, "jobs_running") == 0 && number_of(status, "standby") == 1 &&
		    number_of(status, "loaders") == 1 && process_children(r->stack->keeper) == 1 &&
		    process_children(gpuwmd) == 1;

	if (idle && !idle_base.known) {
		idle_base.gpuwmd = own;
		idle_base.keeper = keeper;
		idle_base.files = files;
		idle_base.known = true;
	}
	idle = idle && own == idle_base.gpuwmd && keeper == idle_base.keeper &&
	       (files == idle_base.files || leaves_files(r->fault));
	if (!idle)
		snprintf(
			ret_why, size,
			"leases %ju, publishes %ju, waiting %ju, sessions %ju, jobs %ju, standby %ju; descriptors of gpuwmd "
			"%zu instead of %zu, of the keeper %zu instead of %zu; children %u, %u; files %u instead of %u",
			number_of(status, "leases"), number_of(status, "publishes"),
			number_of(status, "waiting"), number_of(status, "sessions"),
			number_of(status, "jobs_running"), number_of(status, "standby"), own, idle_base.gpuwmd,
			keeper, idle_base.keeper, process_children(r->stack->keeper), process_children(gpuwmd),
			files, idle_base.files);
	json_decref(status);
	json_decref(list);
	return idle;
}

static void check_idle(struct round *r)
{
	struct gpuwm_client *client;
	char why[512] = "nobody answers";

	step_begin(r, "waiting until it is idle");
	if (EVENTUALLY(LIMIT_MS - 2000, ({
			       bool idle_ = false;
			       if (stack_operator(r->stack, &client) == 0) {
				       idle_ = is_idle(r, client, why, sizeof why);
				       gpuwm_close(client);
			       }
			       idle_;
		       })))
		alarm(0);
	else
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
	if (round_up(r))
		check_idle(r);
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
