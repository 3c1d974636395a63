/* Operators in the storm. Most speak without the library, so that nothing is repeated behind their backs. */
#include "registry_storm.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So that loads and publishes, which take longer, are as often under way as the rest. */
#define REST_US 8000

/* ---- starting, asking ------------------------------------------------- */

void admin_connect(struct admin *a)
{
	if (a->sock >= 0)
		close(a->sock);
	a->sock = raw_client(a->d->admin_socket);
}

void admin_start(struct admin *a, struct gpuwmd *d, unsigned number, uint64_t seed)
{
	*a = (struct admin){.number = number, .d = d, .dice = {.state = seed * 1000 + number}, .sock = -1};
	a->by_library = number == MODELS - 1;
	registry_model_init(&a->model);
	if (a->by_library)
		a->library = process_start(registry_library_admin, NULL);
	admin_connect(a);
}

static const char *alias_of(const struct op *op)
{
	return op->alias >= 0 ? registry_alias_names[op->alias] : NULL;
}

static void put_swap(struct message_writer *w, const struct op *op)
{
	char model[REF_TEXT], tag[REF_TEXT];

	snprintf(model, sizeof model, "m%u", op->model);
	snprintf(tag, sizeof tag, "t%u", op->tag);
	message_put_text(w, "model", model);
	message_put_text(w, "alias", alias_of(op));
	message_put_text(w, "to", op->kind == OP_SWAP ? tag : NULL);
	message_put_text(w, "expect", op->expect[0] ? op->expect : NULL);
	message_put_bool(w, "retire_old", op->retire_old);
}

static void put_load(struct message_writer *w, const struct admin *a)
{
	char path[256], name[REF_TEXT];

	snprintf(path, sizeof path, "%s/s%u.safetensors", a->d->root, a->op.seed);
	registry_name(name, a->op.model, a->op.tag);
	message_put_text(w, "source", path);
	message_put_text(w, "name", name);
	message_begin_array(w, "devices");
	message_put_text(w, NULL, a->d->device);
	message_end(w);
	message_put_text(w, "alias", alias_of(&a->op));
}

static void put_ref(struct message_writer *w, const struct op *op)
{
	char ref[REF_TEXT], pin[16];

	registry_name(ref, op->model, op->tag);
	message_put_text(w, "ref", ref);
	if (op->kind == OP_RETIRE)
		return;
	snprintf(pin, sizeof pin, "p%u", op->pin);
	message_put_text(w, "pin", pin);
}

/* What can't be sent any more was never asked for; its end is heard as every other. */
static void send_raw(int sock, struct message_writer *w)
{
	int r;

	message_end(w);
	cr_assert_eq(message_finish(w), 0);
	r = raw_send_bytes(sock, w->buffer.data, w->buffer.size, NULL, 0);
	cr_assert(r == 0 || r == -EPIPE || r == -ECONNRESET, "%d", r);
	message_writer_clear(w);
}

static void ask_raw(struct admin *a)
{
	static const char *const methods[OP_KINDS] = {
		"load", "", "hot_swap", "hot_swap", "pin_version", "unpin_version", "retire"};
	struct message_writer w;

	raw_request(&w, 2, methods[a->op.kind]);
	if (a->op.kind == OP_LOAD)
		put_load(&w, a);
	else if (a->op.kind == OP_SWAP || a->op.kind == OP_REMOVE)
		put_swap(&w, &a->op);
	else
		put_ref(&w, &a->op);
	send_raw(a->sock, &w);
}

static void ask_publisher(struct admin *a)
{
	char name[REF_TEXT], seed[16];
	const char *alias = alias_of(&a->op);

	registry_name(name, a->op.model, a->op.tag);
	snprintf(seed, sizeof seed, "%u", a->op.seed);
	a->publisher = process_start(registry_publisher, a->d->device, name, seed, alias ? alias : "", NULL);
}

static void foresee(struct admin *a)
{
	a->changed = a->model;
	a->expected = registry_apply(&a->changed, &a->op);
}

void admin_ask(struct admin *a, const struct op *op)
{
	cr_assert_eq(a->state, OP_NONE);
	a->op = *op;
	foresee(a);
	a->seen = false;
	a->job = 0;
	a->state = OP_SENT;
	if (op->kind == OP_PUBLISH)
		ask_publisher(a);
	else if (a->by_library && op->kind != OP_LOAD)
		work_send(&a->library, &(struct work){.what = WORK_OPERATE, .op = *op});
	else
		ask_raw(a);
}

void admin_begin(struct admin *a)
{
	struct op op = op_throw(&a->dice, &a->model, a->number);

	admin_ask(a, &op);
}

/* ---- the answer ------------------------------------------------------- */

/* Nobody says whether it was done. */
static bool leaves_doubt(const struct admin *a, int code)
{
	/* A job that a stop cancels may have made its version by then. */
	return code == -ECONNRESET || code == -ECONNABORTED || (a->op.kind <= OP_PUBLISH && code == -ECANCELED);
}

static void conclude(struct admin *a, int code, const char *message)
{
	char text[200];

	op_describe(&a->op, text, sizeof text);
	if (leaves_doubt(a, code) && !a->seen) {
		a->state = OP_DOUBTED;
		return;
	}
	a->state = OP_NONE;
	a->rests_until_us = clock_us() + (int64_t)dice_throw(&a->dice, REST_US);
	if (a->seen) {
		cr_assert(code == 0 || leaves_doubt(a, code), "%s: %d (%s), and it is done", text, code,
			  message);
	} else {
		cr_assert_eq(code, a->expected, "%s: %d (%s) instead of %d", text, code, message, a->expected);
		if (code == 0)
			a->model = a->changed;
	}
	a->counts[a->op.kind].done += code == 0;
	a->counts[a->op.kind].refused += code != 0;
}

static void wait_for_job(struct admin *a, const struct message *message)
{
	struct message_writer w;
	struct fields f;

	fields_of(&f, message->body);
	a->job = fields_u64(&f, "job");
	raw_request(&w, 3, "jobs");
	message_put_u64(&w, "job", a->job);
	message_put_i64(&w, "wait_ms", -1);
	send_raw(a->sock, &w);
}

static int outcome_of_job(const struct message *message, struct error *error)
{
	const msgpack_object *jobs;
	struct fields f, job;
	uint32_t count;
	char state[32];

	fields_of(&f, message->body);
	jobs = fields_array(&f, "jobs", &count);
	cr_assert_eq(count, 1);
	fields_of(&job, jobs);
	fields_text(&job, "state", state, sizeof state);
	fields_error(&job, "error", error);
	return strcmp(state, "done") == 0 ? 0 : error->code;
}

static void hear_raw(struct admin *a)
{
	static struct raw_reply reply;
	struct error error;
	int code = -ECONNRESET;

	if (!raw_receive(a->sock, &reply)) {
		conclude(a, code, "the connection has ended");
		return;
	}
	error = reply.message.error;
	code = error.code;
	if (code == 0 && a->op.kind == OP_LOAD && a->job == 0) {
		wait_for_job(a, &reply.message);
		raw_reply_clear(&reply);
		return;
	}
	if (code == 0 && a->job)
		code = outcome_of_job(&reply.message, &error);
	raw_reply_clear(&reply);
	conclude(a, code, error.message);
}

static struct process *process_of(struct admin *a)
{
	if (a->op.kind == OP_PUBLISH)
		return &a->publisher;
	return a->by_library && a->op.kind != OP_LOAD ? &a->library : NULL;
}

int admin_fd(const struct admin *a)
{
	const struct process *process = process_of((struct admin *)a);

	if (a->state != OP_SENT)
		return -1;
	return process ? process->from : a->sock;
}

void admin_hear(struct admin *a)
{
	struct process *process = process_of(a);
	struct work_done done;

	if (!process) {
		hear_raw(a);
		return;
	}
	work_receive(process, &done);
	if (process == &a->publisher)
		process_finish(process);
	conclude(a, done.code, done.message);
}

void admin_drain(struct admin *a)
{
	while (a->state == OP_SENT && !process_of(a))
		hear_raw(a);
}

/* ---- what is there ---------------------------------------------------- */

static bool holds(struct registry_model *model, const struct registry_model *actual,
		  const struct registry_patience *patience, char *difference, size_t size)
{
	registry_compare(model, actual, patience, difference, size);
	return difference[0] == 0;
}

void admin_check(struct admin *a, json_t *list, const struct registry_contents *contents,
		 const struct registry_patience *patience)
{
	char before[256], after[256] = "", text[200];
	bool open = a->state != OP_NONE && a->expected == 0 && !a->seen;
	struct registry_model actual;

	registry_read(list, a->number, contents, &actual);
	op_describe(&a->op, text, sizeof text);
	if (holds(&a->model, &actual, patience, before, sizeof before)) {
		if (a->state == OP_DOUBTED)
			a->counts[a->op.kind].absent++;
	} else {
		cr_assert(open, "m%u is not as acknowledged: %s; the last change was %s", a->number, before,
			  text);
		cr_assert(holds(&a->changed, &actual, patience, after, sizeof after),
			  "m%u is not as acknowledged: %s; nor with what was under way (%s): %s", a->number,
			  before, text, after);
		a->model = a->changed;
		a->seen = true;
		if (a->state == OP_DOUBTED)
			a->counts[a->op.kind].there++;
	}
	if (a->state == OP_DOUBTED)
		a->state = OP_NONE;
	if (a->state == OP_SENT && !a->seen)
		foresee(a);
}

void admin_stop(struct admin *a)
{
	if (a->by_library) {
		work_send(&a->library, &(struct work){.what = WORK_QUIT});
		process_finish(&a->library);
	}
	close(a->sock);
}
