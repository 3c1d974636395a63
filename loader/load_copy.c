#include "load_internal.h"

#include "devices/lanes.h"

#include <string.h>

/* Zeroes what no tensor covers, before the copy: fresh memory of a GPU may hold anything. */
static int zero_gaps(struct load *load, const struct load_part *parts, size_t count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++) {
		const struct memory_device *device = publish_device(parts[i].publish);

		r = device->ops->enter(device, load->error);
		if (r < 0)
			break;
		r = publish_zero_gaps(parts[i].publish, load->error);
		device->ops->leave(device);
	}
	return r;
}

/* The copy of one rank to the devices that hold it, or of a cut to all ranks. */
struct rank_copy {
	struct load *load;
	const struct load_part *parts;
	size_t count;
	struct copy_target targets[PARTS_PER_VERSION_MAX];
	struct lanes *lanes; /* NULL: none are needed, or they are not open yet */
};

static int load_await_gpu(struct load *load)
{
	const struct ring *ring = prepare_ring(load->prepare);
	int r = work_phase(load->work, "starting the GPU", 0);

	if (r == 0)
		r = prepare_wait(load->prepare, work_advance, load->work, load->error);
	if (r != 0)
		return r;
	if (ring->note[0])
		work_note(load->work, "%s", ring->note);
	if (prepare_was_kept(load->prepare))
		work_note(load->work, "its CUDA contexts were kept for it");
	return 0;
}

/* Waits for memory on all devices and, if they are GPUs, for what prepare.h makes. The first rank's
 * copy needs them. */
static int get_ready(struct load *load)
{
	int r;

	if (load->ready)
		return 0;
	r = load_begin_all(load);
	if (r == 0 && prepare_ring(load->prepare))
		r = load_await_gpu(load);
	if (r == 0)
		r = work_phase(load->work, "copying", load->source.bytes);
	load->ready = r == 0;
	return r;
}

/* Returns the rank of a target, as struct copy_target has it. */
static uint32_t rank_in_cut(const struct rank_copy *c, size_t target)
{
	return c->load->params->wish.choice.cut ? c->parts[target].rank : 0;
}

static int make_targets(struct rank_copy *c)
{
	int r = get_ready(c->load);

	for (size_t i = 0; r == 0 && i < c->count; i++)
		c->targets[i] = (struct copy_target){
			.rank = rank_in_cut(c, i),
			.device = publish_device(c->parts[i].publish),
			.addresses = c->parts[i].addresses,
			.segments = publish_segment(c->parts[i].publish, 0),
			.segment_count = publish_plan(c->parts[i].publish)->segment_count,
		};
	return r;
}

/* The function `open` of struct copy. Its error is the load's. */
static int open_rank(struct lanes **ret, void *data, struct error *error)
{
	struct rank_copy *c = data;
	struct load *load = c->load;
	int r = make_targets(c);

	if (r == 0)
		r = lanes_open(c->targets, c->count, prepare_ring(load->prepare)->count, &c->lanes, error);
	if (r == 0 && lanes_note(c->lanes)[0])
		work_note(load->work, "%s", lanes_note(c->lanes));
	*ret = c->lanes;
	return r < 0 ? r : zero_gaps(load, c->parts, c->count);
}

/* Whether the CPU can't write the memory of one of these devices. */
static bool parts_need_ring(const struct load_part *parts, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct memory_ops *ops = memory_ops_of(parts[i].device);

		if (!ops || !ops->cpu_addresses)
			return true;
	}
	return false;
}

/* Copies a source, or a part of one, to these parts, and sets the digests of its tensors. */
static int copy_source(struct load *load, const struct source *source, const struct load_part *parts,
		       size_t count, struct digest *digests)
{
	struct rank_copy c = {.load = load, .parts = parts, .count = count};
	struct copy copy = {
		.source = source,
		.targets = c.targets,
		.target_count = count,
		.cut = load->params->wish.choice.cut ? &load->cut : NULL,
		.open = open_rank,
		.open_data = &c,
		.progress = work_advance,
		.user_data = load->work,
	};
	struct copy_report report;
	int r;

	for (size_t i = 0; i < count; i++)
		c.targets[i].rank = rank_in_cut(&c, i);
	if (parts_need_ring(parts, count)) {
		r = prepare_wait_buffers(load->prepare, work_advance, load->work, load->error);
		if (r != 0)
			return r;
		copy.readers = prepare_readers(load->prepare);
		copy.ring = prepare_ring(load->prepare);
		copy.chunk = prepare_chunk(load->prepare);
	} else {
		r = make_targets(&c);
		if (r == 0)
			r = zero_gaps(load, parts, count);
		if (r != 0)
			return r;
	}
	r = copy_run(&copy, digests, &report, load->error);
	copy_report_add(&load->copied, &report);
	lanes_close(c.lanes);
	return r;
}

int load_copy_all(struct load *load)
{
	size_t replicas = load->part_count / load->world; /* of each rank, if the source is not cut */
	char text[TEXT_BYTES_MAX + 1];
	int r = 0;

	if (load->params->wish.choice.cut)
		r = copy_source(load, &load->source, load->parts, load->part_count, load->digests);
	for (size_t i = 0; r == 0 && !load->params->wish.choice.cut && i < load->part_count; i += replicas) {
		const struct source_rank *rank = rank_of(load, &load->parts[i]);
		struct source source = load->source;

		source.tensors += rank->tensor;
		source.tensor_count = rank->tensor_count;
		source.bytes = rank->bytes;
		r = copy_source(load, &source, &load->parts[i], replicas, load->digests + rank->tensor);
	}
	if (r < 0)
		return r;
	source_give_back_leases(&load->source);
	for (size_t i = 0; i < load->part_count; i++) {
		const struct source_rank *rank = rank_of(load, &load->parts[i]);

		for (size_t k = 0; k < rank->tensor_count; k++)
			publish_digest(load->parts[i].publish, k, &load->digests[rank->tensor + k]);
	}
	copy_report_text(&load->copied, text, sizeof(text));
	work_note(load->work, "%s", text);
	if (load->copied.note[0])
		work_note(load->work, "%s", load->copied.note);
	return 0;
}
