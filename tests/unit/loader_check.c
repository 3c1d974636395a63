#include "../../loader/check.h"

#include "../../proto/index/index.h"
#include "tests/support/loader/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define SEGMENT 8192

static struct error error;
static struct part list;
static struct check_part part;
static struct check_result result;
static uint8_t bytes[2][SEGMENT]; /* what is written into the segments */
static int fds_before;

static int memfd(const void *data, size_t size, int seals)
{
	int fd = memfd_create("part", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(write(fd, data, size), (ssize_t)size);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void add(struct index_builder *b, size_t position, const char *name, uint64_t size, uint32_t segment,
		uint64_t offset)
{
	struct index_tensor_spec spec = {.name = name,
					 .dtype = DTYPE_U8,
					 .ndim = 1,
					 .shape = &size,
					 .segment = segment,
					 .offset = offset};
	struct digest digest = digest_of(bytes[segment] + offset, size);

	cr_assert_eq(index_builder_tensor(b, &spec, &error), 0, "%s", error.message);
	cr_assert_eq(index_builder_digest(b, position, &digest), 0);
}

/* Two segments: a (100 bytes) at 0 and b (8) at 256 with c tied to it in the first, d filling the
 * second, and an empty e. What is in bytes[] now is what the digests say. */
static void make_index_with(const char *key, const char *value)
{
	struct index_builder *b = index_builder_new(1, 4);

	index_builder_segment(b, SEGMENT);
	index_builder_segment(b, SEGMENT);
	add(b, 0, "a", 100, 0, 0);
	add(b, 1, "b", 8, 0, 256);
	add(b, 2, "c", 8, 0, 256);
	add(b, 3, "d", SEGMENT, 1, 0);
	add(b, 4, "e", 0, 0, 0);
	cr_assert_eq(index_builder_metadata(b, key, value), 0);
	cr_assert_eq(index_builder_finish(b, &list.index.fd, &list.index.bytes, &error), 0, "%s",
		     error.message);
	index_builder_free(b);
}

static void make_index(void)
{
	make_index_with("key.dtype", "bf16");
}

static void make_segment(int position, int seals)
{
	if (list.segments[position].fd >= 0)
		close(list.segments[position].fd);
	list.segments[position] = (struct part_fd){memfd(bytes[position], SEGMENT, seals), SEGMENT};
}

static void setup(void)
{
	fds_before = fd_count();
	memset(bytes, 0, sizeof(bytes));
	memset(bytes[0], 7, 100);
	memset(bytes[0] + 256, 9, 8);
	memset(bytes[1], 5, SEGMENT);
	list.segments[0].fd = list.segments[1].fd = -1;
	make_segment(0, SEALS);
	make_segment(1, SEALS);
	part = (struct check_part){.device = "host", .rank = 1, .world = 4, .bytes_max = 2 * SEGMENT};
	part.part = &list;
	list.segment_count = 2;
	make_index();
}

static void teardown(void)
{
	close(list.index.fd);
	close(list.segments[0].fd);
	close(list.segments[1].fd);
	cr_expect_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(check, .init = setup, .fini = teardown);

static int run(void)
{
	memset(&error, 0, sizeof(error));
	return check_part(&part, NULL, NULL, &result, &error);
}

static void refuse(const char *says)
{
	int r = run();

	cr_assert_eq(r, -EBADMSG, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

Test(check, passes_a_good_part)
{
	cr_assert_eq(run(), 0, "%s", error.message);
	cr_assert_eq(result.tensors, 5);
	cr_assert_eq(result.bytes, 2 * SEGMENT);
}

Test(check, refuses_a_key_that_is_none)
{
	static const struct {
		const char *key, *says;
	} cases[] = {
		{"key.", "the metadata \"key.\": the field "},
		{"key.a b", "the metadata \"key.a b\": the field "},
		{"key.a", "has a value of more than 255 bytes"},
	};
	char value[301];

	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		close(list.index.fd);
		make_index_with(cases[i].key, i < 2 ? "v" : value);
		refuse(cases[i].says);
	}
	close(list.index.fd);
	make_index_with("keys", value);
	cr_expect_eq(run(), 0, "%s", error.message);
}

Test(check, refuses_another_rank)
{
	part.rank = 2;
	refuse("the index is of rank 1 of 4, the publish of rank 2 of 4");
	part.rank = 1;
	part.world = 5;
	refuse("rank 1 of 5");
}

Test(check, refuses_another_number_of_segments)
{
	list.segment_count = 1;
	refuse("the index names 2 segments, 1 were handed in");
	list.segments[2] = list.segments[1];
	list.segment_count = 3;
	refuse("the index names 2 segments, 3 were handed in");
}

Test(check, refuses_another_size_than_the_index_says)
{
	list.segments[1].bytes = SEGMENT + 4096;
	refuse("segment 1: the index says 8192 bytes, hand_in says 12288");
}

Test(check, refuses_more_than_was_granted)
{
	part.bytes_max = 2 * SEGMENT - 1;
	refuse("segment 1: with its 8192 bytes the part is above the 16383 that were granted");
	part.bytes_max = 0;
	refuse("segment 0");
}

Test(check, refuses_unsealed_memory)
{
	make_segment(1, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	refuse("segment 1: ");
	cr_assert(strstr(error.message, "seal"), "%s", error.message);
}

Test(check, refuses_memory_of_another_size)
{
	close(list.segments[0].fd);
	list.segments[0].fd = memfd(bytes[0], SEGMENT - 4096, SEALS);
	refuse("segment 0: ");
	cr_assert(strstr(error.message, "4096") && strstr(error.message, "8192"), "%s names both",
		  error.message);
}

Test(check, refuses_a_wrong_digest)
{
	bytes[0][260]++;
	make_segment(0, SEALS);
	refuse("tensor \"b\": the index says digest ");
	bytes[0][260]--;
	make_segment(0, SEALS);
	bytes[1][SEGMENT - 1]++;
	make_segment(1, SEALS);
	refuse("tensor \"d\"");
}

Test(check, refuses_dirty_padding)
{
	static const int places[] = {100, 255, 264, SEGMENT - 1};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		bytes[0][places[i]] = 1;
		make_segment(0, SEALS);
		refuse("segment 0: the padding in bytes");
		bytes[0][places[i]] = 0;
	}
}

/* ---- bytes that a copy has ----------------------------------------------- */

#define STEP 264 /* a copy's piece: it ends within tensors and between them */

/* Adds what is in bytes[], the last pieces first, and compares. */
static int run_added(int *ret_damaged)
{
	struct check *check = NULL;
	int r;

	memset(&error, 0, sizeof(error));
	cr_assert_eq(check_open(&part, &check, &error), 0, "%s", error.message);
	for (uint32_t segment = 0; segment < 2; segment++) {
		cr_expect(check_adds(check, segment));
		for (uint64_t left = SEGMENT, at; left > 0; left = at) {
			at = (left - 1) / STEP * STEP;
			check_add(check, segment, at, bytes[segment] + at, left - at);
		}
	}
	r = check_added(check, &error);
	*ret_damaged = check_damaged(check);
	check_close(check);
	return r;
}

Test(check, what_a_copy_has_is_compared)
{
	static const struct {
		int segment, at;
		const char *says;
	} damage[] = {
		{0, 0, "tensor \"a\": the index says digest "},
		{0, 263, "tensor \"b\""},
		{0, 255, "segment 0: the padding"},
		{0, SEGMENT - 1, "segment 0: the padding"},
		{1, STEP, "tensor \"d\""},
	};
	int damaged;

	cr_assert_eq(run_added(&damaged), 0, "%s", error.message);
	cr_expect_eq(damaged, -1);
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		bytes[damage[i].segment][damage[i].at]++;
		cr_expect_eq(run_added(&damaged), -EBADMSG);
		cr_expect(strstr(error.message, damage[i].says), "\"%s\" does not say \"%s\"", error.message,
			  damage[i].says);
		cr_expect_eq(damaged, damage[i].segment);
		bytes[damage[i].segment][damage[i].at]--;
	}
}

Test(check, what_a_copy_tears_is_not_added)
{
	struct index_builder *b = index_builder_new(1, 4);
	static const bool left_out[2] = {false, true};
	struct check *check = NULL;

	close(list.index.fd);
	index_builder_segment(b, SEGMENT);
	index_builder_segment(b, SEGMENT);
	add(b, 0, "a", 90, 0, 9); /* its words are not those of the segment */
	bytes[0][99] = 0;
	add(b, 1, "d", SEGMENT, 1, 0);
	cr_assert_eq(index_builder_finish(b, &list.index.fd, &list.index.bytes, &error), 0, "%s",
		     error.message);
	index_builder_free(b);
	part.left_out = left_out;
	cr_assert_eq(check_open(&part, &check, &error), 0, "%s", error.message);
	cr_expect_not(check_adds(check, 0));
	cr_expect_not(check_adds(check, 1));
	check_add(check, 1, 0, bytes[0], SEGMENT);
	cr_expect_eq(check_added(check, &error), 0, "%s", error.message);
	check_close(check);
}

Test(check, refuses_descriptors_that_are_no_memory)
{
	int pipes[2];

	cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
	close(pipes[1]);
	close(list.segments[0].fd);
	list.segments[0].fd = pipes[0];
	refuse("segment 0: the descriptor is not a memfd");
	close(list.segments[0].fd);
	list.segments[0].fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	refuse("segment 0: the descriptor is not a memfd");
}

Test(check, refuses_an_index_that_is_no_memfd)
{
	close(list.index.fd);
	list.index.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	refuse("the descriptor of the index is no memfd");
}

/* The index again, with one 8-byte word of it changed, or less sealed. */
static void remake_index(size_t at, uint64_t value, int seals)
{
	uint8_t *data = malloc(list.index.bytes);

	cr_assert_eq(pread(list.index.fd, data, list.index.bytes, 0), (ssize_t)list.index.bytes);
	if (at)
		memcpy(data + at, &value, sizeof(value));
	close(list.index.fd);
	list.index.fd = memfd(data, list.index.bytes, seals);
	free(data);
}

#define FIRST_TENSOR (sizeof(struct index_header) + 2 * sizeof(struct index_segment))

Test(check, refuses_an_index_that_points_outside)
{
	remake_index(FIRST_TENSOR + offsetof(struct index_tensor, offset), SEGMENT, SEALS);
	cr_assert_eq(run(), -EBADMSG, "%s", error.message);
	cr_assert(strstr(error.message, "\"a\""), "%s names the tensor", error.message);
}

Test(check, refuses_an_index_that_was_changed)
{
	remake_index(FIRST_TENSOR + offsetof(struct index_tensor, digest), 1, SEALS);
	cr_assert_eq(run(), -EBADMSG, "%s", error.message);
}

Test(check, refuses_an_unsealed_index)
{
	remake_index(0, 0, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	cr_assert_eq(run(), -EBADMSG, "%s", error.message);
	cr_assert(strstr(error.message, "seal"), "%s", error.message);
}

Test(check, refuses_an_index_of_another_size)
{
	list.index.bytes -= 8;
	cr_assert_eq(run(), -EBADMSG, "%s", error.message);
	list.index.bytes = INDEX_BYTES_MAX + 1;
	refuse("above the limit of");
}

Test(check, refuses_a_device_that_is_none)
{
	part.device = "GPU-00000000-0000-0000-0000-000000000000";
	cr_assert_lt(run(), 0);
	cr_assert(error.message[0]);
}

static uint64_t told;

static int count(uint64_t done, void *user_data)
{
	told += done;
	return user_data && told >= *(uint64_t *)user_data ? -ECANCELED : 0;
}

Test(check, tells_how_far_it_is_and_can_be_stopped)
{
	uint64_t enough = 1;

	told = 0;
	cr_assert_eq(check_part(&part, count, NULL, &result, &error), 0, "%s", error.message);
	cr_assert_eq(told, 2 * SEGMENT, "each byte once");
	told = 0;
	cr_assert_eq(check_part(&part, count, &enough, &result, &error), -ECANCELED);
	cr_assert_leq(told, 2 * SEGMENT);
}
