/* A worker: attaches to REF, prints its tensors or the sum of one of them, and follows when an
 * operator swaps an alias: in place where the new version has the same layout, so that every
 * pointer stays; else it attaches anew. Where it can't follow, because the alias was removed, say,
 * it keeps the version that it has, and tries again at the next swap. A restart of gpuwmd does not
 * concern it, but for its events: they go on with the next one. */
#include <gpuwm/client.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	return 1;
}

static void print_tensors(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;

	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		printf("%-40s %-5s", tensor.name, gpuwm_dtype_name(tensor.dtype));
		for (uint32_t d = 0; d < tensor.ndim; d++)
			printf(" %" PRIu64, tensor.shape[d]);
		printf("  at %p\n", tensor.data);
	}
}

/* A sum of the bytes. On `host` tensor.data could be read in place; the copy works on a GPU too. */
static int print_checksum(const struct gpuwm_mapping *mapping, const char *name)
{
	struct gpuwm_tensor tensor;
	uint64_t sum = 0, size;
	unsigned char buffer[65536];

	if (gpuwm_tensor_find(mapping, name, &tensor) < 0)
		return -1;
	for (uint64_t done = 0; done < tensor.bytes; done += size) {
		size = tensor.bytes - done < sizeof(buffer) ? tensor.bytes - done : sizeof(buffer);
		if (gpuwm_tensor_read(mapping, &tensor, done, buffer, size) < 0)
			return -1;
		for (uint64_t i = 0; i < size; i++)
			sum += buffer[i];
	}
	printf("%s: %" PRIu64 " bytes, sum %" PRIu64 "\n", name, tensor.bytes, sum);
	return 0;
}

struct watch {
	bool swapped;
	uint64_t seq; /* of the last event */
};

static void on_event(const struct gpuwm_event *event, void *user_data)
{
	struct watch *watch = user_data;

	watch->seq = event->seq;
	if (strcmp(event->kind, "swapped") == 0 || strcmp(event->kind, "lost") == 0)
		watch->swapped = true;
}

static int wait_for_swap(struct gpuwm_client *client, struct gpuwm_events **events)
{
	struct watch watch = {0};
	int r = 0;

	while (!watch.swapped && r >= 0) {
		r = gpuwm_events_dispatch(*events, -1, on_event, &watch);
		if (r == -ECONNRESET) {
			*events = gpuwm_events_close(*events);
			r = gpuwm_events_open(client, watch.seq, events);
		}
	}
	return r;
}

/* The new version first: without it the worker keeps the old one. */
static int attach_anew(struct gpuwm_client *client, const char *ref, struct gpuwm_mapping **mapping)
{
	struct gpuwm_mapping *next;
	int r;

	printf("%s: attaching anew\n", gpuwm_error()->message);
	r = gpuwm_attach(client, ref, NULL, &next);
	if (r < 0)
		return r;
	gpuwm_drop(*mapping);
	*mapping = next;
	return 0;
}

/* This is the quiet point: nothing reads the tensors now. 0: the mapping is of the version that the alias names. 1: it is
 * still of the one before. Negative: its memory is lost. */
static int follow(struct gpuwm_client *client, const char *ref, struct gpuwm_mapping **mapping)
{
	int r = gpuwm_switch(*mapping, ref, NULL);

	if (r == -EXDEV)
		r = attach_anew(client, ref, mapping);
	if (r == 0 || r == -ENOTRECOVERABLE)
		return r;
	printf("keeps version %s: %s\n", gpuwm_mapping_version(*mapping)->id, gpuwm_error()->message);
	fflush(stdout);
	return 1;
}

static int show(const struct gpuwm_mapping *mapping, const char *name)
{
	const struct gpuwm_version_info *version = gpuwm_mapping_version(mapping);

	printf("version %s, %" PRIu64 " bytes at %p\n", version->id, version->bytes,
	       gpuwm_mapping_address(mapping, NULL));
	if (name && print_checksum(mapping, name) < 0)
		return -1;
	if (!name)
		print_tensors(mapping);
	return fflush(stdout);
}

static void on_lost(const struct gpuwm_lost *lost, void *user_data)
{
	(void)user_data;
	fprintf(stderr, "%s@%s is not there any more (%s), what is mapped stays\n", lost->model, lost->tag,
		lost->error.message);
}

int main(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	struct gpuwm_events *events;

	if (argc < 2)
		return fprintf(stderr, "usage: %s REF [TENSOR]\n", argv[0]), 2;
	options.lost = on_lost;
	if (gpuwm_connect(&options, &client) < 0 || gpuwm_events_open(client, UINT64_MAX, &events) < 0)
		return fail("connect");
	if (gpuwm_attach(client, argv[1], NULL, &mapping) < 0)
		return fail("attach");
	for (int kept = 0;; kept = follow(client, argv[1], &mapping)) {
		if (kept < 0)
			return fail("following");
		if (!kept && show(mapping, argc < 3 ? NULL : argv[2]) < 0)
			return fail("reading");
		if (wait_for_swap(client, &events) < 0)
			return fail("events");
	}
}
