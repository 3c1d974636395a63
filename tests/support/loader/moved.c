#include "moved.h"

#include "../../../memory/memory.h"
#include "../../../proto/index/index.h"

#include <errno.h>
#include <fcntl.h>

static const uint64_t sizes[MOVED_SEGMENTS] = {MIB(2), MIB(6)};

struct moved_tensor {
	const char *name;
	unsigned dtype, ndim;
	uint64_t shape[4];
	int64_t strides[4]; /* all 0: dense */
	uint32_t segment;
	uint64_t offset;
};

#define BIG (MIB(5) + 3)
static const struct moved_tensor tensors[] = {
	{"big", DTYPE_U8, 1, {BIG}, {0}, 1, 512},
	{"dense", DTYPE_F32, 2, {2, 3}, {0}, 0, 256},
	{"empty", DTYPE_F32, 2, {0, 3}, {0}, 0, 0},
	{"small", DTYPE_F4, 1, {4}, {0}, 0, 1024},
	{"tied", DTYPE_F32, 2, {3, 2}, {0}, 0, 256},
	{"turned", DTYPE_BF16, 2, {5, 7}, {1, 5}, 0, 2048},
	{"twisted", DTYPE_I64, 4, {3, 1, 4, 2}, {2, 1000, 6, 1}, 0, 4096},
};
#define COUNT (sizeof(tensors) / sizeof(tensors[0]))

struct part part, moved;
uint64_t moved_more, moved_rank = 1, moved_ranks;
const char *moved_cut;
static uint8_t *memory[MOVED_SEGMENTS]; /* what the segments hold */

bool on_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0;
}

const char *moved_device(void)
{
	return on_fakecuda() ? MOVED_GPU : DEVICE_HOST;
}

static uint64_t bytes_of(const struct moved_tensor *t)
{
	uint64_t bytes = 0;

	dtype_bytes(t->dtype, t->ndim, t->shape, &bytes);
	return bytes;
}

static void fill(void)
{
	uint32_t seed = 1;

	for (unsigned i = 0; i < MOVED_SEGMENTS; i++)
		memory[i] = memory[i] ? memory[i] : calloc(1, sizes[i]);
	for (size_t i = 0; i < COUNT; i++)
		for (uint64_t k = 0; k < bytes_of(&tensors[i]); k++)
			memory[tensors[i].segment][tensors[i].offset + k] =
				(uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
}

static const int64_t *strides_of(const struct moved_tensor *t)
{
	return t->strides[0] ? t->strides : NULL;
}

void moved_index(struct part *ret)
{
	struct index_builder *b = index_builder_new(1, 3);
	struct error error;

	fill();
	for (unsigned i = 0; i < MOVED_SEGMENTS; i++)
		index_builder_segment(b, sizes[i] + (i == 1 ? moved_more : 0));
	for (size_t i = 0; i < COUNT; i++) {
		const struct moved_tensor *t = &tensors[i];
		struct digest digest = digest_of(memory[t->segment] + t->offset, bytes_of(t));
		struct index_tensor_spec spec = {t->name,       t->dtype,   t->ndim,  t->shape,
						 strides_of(t), t->segment, t->offset};

		cr_assert_eq(index_builder_tensor(b, &spec, &error), 0, "%s", error.message);
		index_builder_digest(b, i, &digest);
	}
	part_init(ret);
	cr_assert_eq(index_builder_finish(b, &ret->index.fd, &ret->index.bytes, &error), 0, "%s",
		     error.message);
	index_builder_free(b);
}

static int make_segment(const struct memory_device *device, const uint8_t *bytes, uint64_t size)
{
	struct memory_segment segment;
	struct error error;
	int fd;

	cr_assert_eq(device->ops->create(device, size, &segment, &error), 0, "%s", error.message);
	cr_assert_eq(device->ops->map(device, &segment, MEMORY_WRITE, &error), 0, "%s", error.message);
	cr_assert_eq(device->ops->enter(device, &error), 0, "%s", error.message);
	cr_assert_eq(device->ops->write(device, segment.address, bytes, size, &error), 0);
	device->ops->leave(device);
	device->ops->unmap(device, &segment);
	cr_assert_eq(device->ops->export(device, &segment, &error), 0, "%s", error.message);
	fd = segment.fd;
	segment.fd = -1;
	device->ops->release(device, &segment);
	return fd;
}

void moved_make(const char *device, int64_t changed, struct part *ret)
{
	struct memory_device memory_device;
	struct error error;

	moved_index(ret);
	cr_assert_eq(memory_device_open(device, &memory_device, &error), 0, "%s", error.message);
	if (changed >= 0)
		memory[0][changed] ^= 4;
	for (unsigned i = 0; i < MOVED_SEGMENTS; i++)
		ret->segments[ret->segment_count++] =
			(struct part_fd){make_segment(&memory_device, memory[i], sizes[i]), sizes[i]};
	if (changed >= 0)
		memory[0][changed] ^= 4;
}

/* The elements in the order of rows, each found by its strides. */
static void write_rows(FILE *file, const struct moved_tensor *t)
{
	const uint8_t *from = memory[t->segment] + t->offset;
	uint64_t element = dtype_element_bytes(t->dtype), count = element ? bytes_of(t) / element : 0;

	if (!strides_of(t)) {
		fwrite(from, 1, bytes_of(t), file);
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t left = i, at = 0;

		for (unsigned d = t->ndim; d-- > 0; left /= t->shape[d])
			at += left % t->shape[d] * (uint64_t)t->strides[d];
		fwrite(from + at * element, 1, element, file);
	}
}

static size_t write_entry(char *text, const struct moved_tensor *t, uint64_t at)
{
	size_t used = (size_t)sprintf(text, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", *text ? ',' : '{',
				      t->name, dtype_name(t->dtype));

	for (unsigned d = 0; d < t->ndim; d++)
		used += (size_t)sprintf(text + used, "%s%llu", d ? "," : "", (unsigned long long)t->shape[d]);
	return used + (size_t)sprintf(text + used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
				      (unsigned long long)(at + bytes_of(t)));
}

void moved_file(const char *path, const char *leave_out)
{
	char header[2048] = "";
	uint64_t at = 0, length;
	size_t used = 0;
	FILE *file = fopen(path, "we");

	fill();
	for (size_t i = 0; i < COUNT; i++) {
		if (leave_out && strcmp(tensors[i].name, leave_out) == 0)
			continue;
		header[used] = used ? ',' : 0;
		used += write_entry(header + used, &tensors[i], at);
		at += bytes_of(&tensors[i]);
	}
	header[used++] = '}';
	length = used;
	cr_assert(file);
	fwrite(&length, 8, 1, file);
	fwrite(header, 1, used, file);
	for (size_t i = 0; i < COUNT; i++)
		if (!leave_out || strcmp(tensors[i].name, leave_out) != 0)
			write_rows(file, &tensors[i]);
	cr_assert_eq(fclose(file), 0);
}

void send_move(const char *from, const char *to, const char *source, const struct part *sent)
{
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	size_t count;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "move");
	message_put_text(&w, "model", "m");
	message_put_text(&w, "tag", "v1");
	message_put_u64(&w, "rank", moved_rank);
	message_put_u64(&w, "world", 3);
	message_put_text(&w, "device", moved_device());
	message_put_text(&w, "from", from);
	message_put_text(&w, "to", to);
	if (source) {
		message_put_text(&w, "source", source);
		message_begin_array(&w, "roots");
		message_put_text(&w, NULL, folder);
		message_end(&w);
	}
	if (moved_cut) {
		message_put_u64(&w, "ranks", moved_ranks);
		message_put_text(&w, "cut", moved_cut);
	}
	count = part_write(&w, sent, fds);
	say(gpuwmd, &w, fds, count);
}

void expect_moved(struct part *ret)
{
	struct fields f;
	char device[DEVICE_BYTES_MAX + 1];

	expect("loader_moved");
	fields_of(&f, message.body);
	fields_text(&f, "device", device, sizeof(device));
	cr_expect_str_eq(device, moved_device());
	cr_expect_eq(fields_u64(&f, "rank"), 1);
	cr_assert_eq(part_segments_read(&f, &packet, ret), 0, "%s", f.error.message);
	answer_empty();
}

void expect_whole(const char *device, const struct part *index, const struct part *segments)
{
	struct part whole = *segments;
	struct check_part of = {
		.device = device, .rank = 1, .world = 3, .bytes_max = UINT64_MAX, .part = &whole};
	struct check_result result;
	struct error error;

	whole.index = index->index;
	cr_expect_eq(check_part(&of, NULL, NULL, &result, &error), 0, "%s", error.message);
}

void move_begin(void)
{
	char run[32];

	snprintf(run, sizeof(run), "move%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	part_init(&part);
	part_init(&moved);
	start();
	answer_empty();
}

void move_end(void)
{
	part_close(&part);
	part_close(&moved);
	finish();
}

void move_done(void)
{
	expect("loader_done");
	answer_empty();
	part_close(&part);
	part_close(&moved);
	expect_end(0);
}

void move_failed(const char *code, const char *says)
{
	part_close(&part);
	expect_done(code, says);
}

void move_write_ranks(const char *leave_out)
{
	static const char none[] = "{}";

	write_safetensors(in_folder("model-rank-0-part-0.safetensors"), none, 0);
	write_safetensors(in_folder("model-rank-2-part-0.safetensors"), none, 0);
	moved_file(in_folder("model-rank-1-part-0.safetensors"), leave_out);
}

void move_send_files(const char *from, const char *to)
{
	moved_index(&part);
	send_move(from, to, folder, &part);
}

void move_cancel_when(const char *phase)
{
	char text[64] = "";
	struct fields f;

	while (strcmp(text, phase) != 0) {
		cr_assert(listen_to(gpuwmd));
		fields_of(&f, message.body);
		fields_text(&f, "phase", text, sizeof(text));
	}
	notify("cancel");
}
