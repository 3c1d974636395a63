/* Those who work in the storm: children that do what they are told, and read all the time. */
#include "registry_storm.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two tensors: many read at once, and gpuwmd must have its turn. */
#define READ_PAUSE_MS 2
#define ANSWER_MS 60000

/* ---- the conductor's side --------------------------------------------- */

void work_send(struct process *p, const struct work *work)
{
	cr_assert_eq(write(p->to, work, sizeof *work), (ssize_t)sizeof *work);
}

void work_receive(struct process *p, struct work_done *ret)
{
	struct pollfd ready = {.fd = p->from, .events = POLLIN};

	cr_assert(poll(&ready, 1, ANSWER_MS) == 1, "a child says nothing");
	cr_assert_eq(read(p->from, ret, sizeof *ret), (ssize_t)sizeof *ret, "a child ended without a word");
}

/* ---- in the child ----------------------------------------------------- */

static bool hear(struct work *ret)
{
	return read(CHILD_IN, ret, sizeof *ret) == (ssize_t)sizeof *ret;
}

static void say(const struct work_done *done)
{
	CHILD_ASSERT(write(CHILD_OUT, done, sizeof *done) == (ssize_t)sizeof *done);
}

static void put_error(struct work_done *done, int code)
{
	done->code = code;
	snprintf(done->message, sizeof done->message, "%s", code < 0 ? gpuwm_error()->message : "");
}

struct worker {
	const char *device;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	unsigned seed;
	uint64_t next; /* tensor to be read */
	struct work_done done;
};

static void on_lost(const struct gpuwm_lost *lost, void *user_data)
{
	(void)user_data;
	fprintf(stderr, "%s@%s (%s) is lost: %s\n", lost->model, lost->tag, lost->version, lost->error.message);
	child_fail(__FILE__, __LINE__, "a lease was lost");
}

static struct gpuwm_client *client_of(const struct worker *w)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client = w->client;

	options.lost = on_lost;
	if (!client)
		CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	return client;
}

/* Which of the checkpoints it is, by one tensor; then all of it must be that one. */
static unsigned seed_of(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	unsigned seed = SEEDS;

	CHILD_ASSERT(gpuwm_tensor_find(mapping, "matrix", &tensor) == 0);
	while (seed > 0 && !tensor_holds(mapping, &tensor, seed))
		seed--;
	CHILD_ASSERT(seed > 0);
	CHILD_ASSERT(mapping_holds(mapping, seed));
	return seed;
}

static void attach(struct worker *w, const char *ref)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	int r;

	options.device = w->device;
	w->client = client_of(w);
	r = gpuwm_attach(w->client, ref, &options, &w->mapping);
	put_error(&w->done, r);
	if (r < 0)
		return;
	w->seed = w->done.seed = seed_of(w->mapping);
	strcpy(w->done.version, gpuwm_mapping_version(w->mapping)->id);
}

/* Every other worker begins with a new connection each time. */
static void detach(struct worker *w)
{
	CHILD_ASSERT(gpuwm_mapping_check(w->mapping) == 0);
	put_error(&w->done, gpuwm_detach(w->mapping));
	w->mapping = NULL;
	if (getpid() % 2)
		w->client = gpuwm_close(w->client);
}

static void read_one(struct worker *w)
{
	struct gpuwm_tensor tensor;

	CHILD_ASSERT(gpuwm_tensor_at(w->mapping, w->next++ % gpuwm_tensor_count(w->mapping), &tensor) == 0);
	CHILD_ASSERT(tensor_holds(w->mapping, &tensor, w->seed));
	w->done.reads++;
}

int registry_worker(int argc, char **argv)
{
	struct worker w = {.device = argv[0]};
	struct work work = {0};

	CHILD_ASSERT(argc == 1);
	child_keeps_context();
	for (;;) {
		struct pollfd told = {.fd = CHILD_IN, .events = POLLIN};

		if (poll(&told, 1, w.mapping ? READ_PAUSE_MS : -1) == 0) {
			read_one(&w);
			continue;
		}
		if (!hear(&work))
			return 1;
		w.done.what = work.what;
		w.done.code = 0;
		if (work.what == WORK_ATTACH)
			attach(&w, work.ref);
		else if (work.what == WORK_DETACH)
			detach(&w);
		say(&w.done);
		if (work.what == WORK_QUIT)
			break;
	}
	gpuwm_close(w.client);
	return 0;
}

/* ---- operating through the library ------------------------------------ */

static int operate_swap(struct gpuwm_client *client, const struct op *op)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char model[REF_TEXT], to[REF_TEXT];

	snprintf(model, sizeof model, "m%u", op->model);
	snprintf(to, sizeof to, "t%u", op->tag);
	options.model = model;
	options.alias = registry_alias_names[op->alias];
	options.to = op->kind == OP_SWAP ? to : NULL;
	options.expect = op->expect[0] ? op->expect : NULL;
	options.retire_old = op->retire_old;
	/* 1: another alias keeps the old version, as the model has it. */
	return gpuwm_swap(client, &options, NULL) < 0 ? gpuwm_error()->code : 0;
}

static int operate(struct gpuwm_client *client, const struct op *op)
{
	char ref[REF_TEXT], pin[16];

	registry_name(ref, op->model, op->tag);
	snprintf(pin, sizeof pin, "p%u", op->pin);
	switch (op->kind) {
	case OP_SWAP:
	case OP_REMOVE:
		return operate_swap(client, op);
	case OP_PIN:
		return gpuwm_pin(client, ref, pin);
	case OP_UNPIN:
		return gpuwm_unpin(client, ref, pin);
	case OP_RETIRE:
		return gpuwm_retire(client, ref, 0);
	default:
		child_fail(__FILE__, __LINE__, "it neither loads nor publishes");
	}
}

int registry_library_admin(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	struct work_done done = {0};
	struct work work;

	(void)argv;
	CHILD_ASSERT(argc == 0);
	options.flags = GPUWM_CONNECT_ADMIN;
	CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	while (hear(&work) && work.what == WORK_OPERATE) {
		done.what = work.what;
		put_error(&done, operate(client, &work.op));
		say(&done);
	}
	gpuwm_close(client);
	return 0;
}

/* ---- publishing ------------------------------------------------------- */

static int publish(struct gpuwm_client *client, char **argv, char version[ID_TEXT])
{
	const struct checkpoint *c = SMALL(strtoull(argv[2], NULL, 10));
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_tensor_spec specs[16];
	struct gpuwm_version_info info;
	struct gpuwm_publish *made;
	int r;

	CHILD_ASSERT(checkpoint_tensors(c) <= sizeof specs / sizeof specs[0]);
	checkpoint_specs(c, specs);
	options.device = argv[0];
	options.name = argv[1];
	options.alias = argv[3][0] ? argv[3] : NULL;
	r = gpuwm_publish_begin(client, &options, specs, checkpoint_tensors(c), &made);
	if (r < 0)
		return r;
	r = publish_fill(made, c);
	/* What a loaded file has too, so that the contents are the same. */
	if (r == 0)
		r = gpuwm_publish_metadata(made, "format", "test");
	CHILD_ASSERT(r == 0);
	r = gpuwm_publish_commit(made, &info);
	if (r == 0)
		strcpy(version, info.id);
	return r;
}

int registry_publisher(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	struct work_done done = {.what = WORK_OPERATE};

	CHILD_ASSERT(argc == 4);
	options.flags = GPUWM_CONNECT_ADMIN; /* it moves aliases of operators' models */
	CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	put_error(&done, publish(client, argv, done.version));
	say(&done);
	gpuwm_close(client);
	return 0;
}
