/* Publishers that lie: the checker says so, and the daemon does not care. */
#include "raw.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

SYSTEM_SUITE(publishing_bad);

/* A daemon and a publish of KB(64) that is filled rightly. */
static struct gpuwmd *scene(struct raw_publish *ret)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	cr_assert_eq(raw_publish_begin(ret, "m@v1", KB(64)), 0, "%s", raw_refusal());
	raw_publish_fill(ret);
	return d;
}

/* Hands in and commits. Returns the code of the first that is refused. */
static int hand_in_and_commit(struct raw_publish *p)
{
	int code = raw_hand_in(p);

	return code ? code : raw_commit(p);
}

Test(publishing_bad, a_right_one_is_accepted_without_the_library)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	cr_assert(version_is(d, "m", "v1", "ready"));
	cr_expect_eq(status_of(d, "leases"), 0, "it did not ask for one");
	raw_publish_end(&p);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* Nobody can retire the version before its maker has a lease. */
Test(publishing_bad, a_commit_that_attaches_has_a_lease)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	p.attach = true;
	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	cr_expect_eq(status_of(d, "leases"), 1);
	raw_publish_end(&p);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

Test(publishing_bad, a_repeated_commit_gets_the_same_answer)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	p.content[0] ^= 1;
	cr_assert_neq(raw_commit(&p), 0);
	raw_publish_end(&p);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- what is wrong with a publish -------------------------------------- */

static void segment_is(struct raw_publish *p, int fd)
{
	cr_assert_geq(fd, 0);
	close(p->segment);
	p->segment = fd;
}

/* The index says 0x5a. */
static void segment_of_zeros(struct raw_publish *p)
{
	segment_is(p, raw_memfd(p->bytes, true));
}

static void content_of_another(struct raw_publish *p)
{
	p->content[3] ^= 1;
}

static void segment_smaller(struct raw_publish *p)
{
	segment_is(p, raw_memfd(KB(4), true));
}

static void segment_larger(struct raw_publish *p)
{
	segment_is(p, raw_memfd(KB(128), true));
}

static void sizes_of_another(struct raw_publish *p)
{
	p->bytes = KB(32);
	segment_is(p, raw_memfd(p->bytes, true));
}

static void segment_writable(struct raw_publish *p)
{
	segment_is(p, raw_memfd(p->bytes, false));
}

/* Flips bits of the index at this place; it is sealed again, or not. */
static void index_change(struct raw_publish *p, size_t offset, uint8_t with, bool seal)
{
	static char copy[65536];
	ssize_t bytes = pread(p->index, copy, sizeof copy, 0);
	int changed = raw_memfd(0, false);

	copy[offset] ^= (char)with;
	cr_assert_eq(write(changed, copy, (size_t)bytes), bytes);
	cr_assert(!seal ||
		  fcntl(changed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0);
	close(p->index);
	p->index = changed;
}

static void index_writable(struct raw_publish *p)
{
	index_change(p, 0, 0, false);
}

/* The tensor's offset: after the header and one segment. */
static void index_points_outside(struct raw_publish *p)
{
	index_change(p,
		     sizeof(struct index_header) + sizeof(struct index_segment) +
			     offsetof(struct index_tensor, offset) + 5,
		     0x7f, true);
}

static void index_without_magic(struct raw_publish *p)
{
	index_change(p, 0, 0xff, true);
}

static void a_surplus_descriptor(struct raw_publish *p)
{
	p->surplus = true;
}

static void segment_dev_null(struct raw_publish *p)
{
	segment_is(p, open("/dev/null", O_RDWR | O_CLOEXEC));
}

static void segment_pipe(struct raw_publish *p)
{
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	segment_is(p, ends[0]);
	close(ends[1]);
}

static void segment_on_disk(struct raw_publish *p)
{
	char path[] = "/tmp/gpuwm-test-file-XXXXXX";

	segment_is(p, mkostemp(path, O_CLOEXEC));
	unlink(path);
}

static void more_than_was_granted(struct raw_publish *p)
{
	close(p->segment);
	close(p->index);
	p->bytes = KB(128);
	raw_publish_fill(p);
}

static const struct {
	const char *name;
	void (*spoil)(struct raw_publish *p);
	const char *words; /* which the refusal has */
} lies[] = {
	{"a wrong digest of a tensor", segment_of_zeros, "t"},
	{"a wrong content digest", content_of_another, "content"},
	{"a segment smaller than said", segment_smaller, "65536"},
	{"a segment larger than said", segment_larger, "65536"},
	{"sizes that differ from the index", sizes_of_another, ""},
	{"a memfd that is still writable", segment_writable, "seal"},
	{"an index that is still writable", index_writable, "seal"},
	{"an index that points outside its segments", index_points_outside, ""},
	{"an index with no magic", index_without_magic, ""},
	{"a descriptor that nothing names", a_surplus_descriptor, "descriptors"},
	{"/dev/null as a segment", segment_dev_null, ""},
	{"a pipe as a segment", segment_pipe, ""},
	{"a file of a disk as a segment", segment_on_disk, ""},
	{"more than was granted", more_than_was_granted, ""},
};

GPUWMD_TEST(publishing_bad, what_is_wrong_is_refused_and_given_back)
{
	const size_t fds = fds_settled(d);

	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		const char *name = lies[i].name;
		struct raw_publish p;
		int code;

		cr_assert_eq(raw_publish_begin(&p, "m@v1", KB(64)), 0, "%s: %s", name, raw_refusal());
		raw_publish_fill(&p);
		lies[i].spoil(&p);
		code = hand_in_and_commit(&p);
		cr_assert_eq(code, -EBADMSG, "%s: %d: %s", name, code, raw_refusal());
		cr_assert(strstr(raw_refusal(), lies[i].words), "%s: '%s' does not say '%s'", name,
			  raw_refusal(), lies[i].words);
		/* Before the connection ends: then its grant would wait for the end of this process. */
		cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed")), "%s", name);
		raw_publish_end(&p);
		cr_assert(EVENTUALLY(SOON_MS, fds_settled(d) == fds), "%s: gpuwmd keeps a descriptor", name);
	}
}

GPUWMD_TEST(publishing_bad, every_byte_of_the_header_counts)
{
	for (size_t i = 0; i < sizeof(struct index_header); i += 8) {
		struct raw_publish p;
		int code;

		cr_assert_eq(raw_publish_begin(&p, "m@v1", KB(4)), 0, "%s", raw_refusal());
		raw_publish_fill(&p);
		index_change(&p, i, 0x80, true);
		code = hand_in_and_commit(&p);
		cr_assert_eq(code, -EBADMSG, "byte %zu: %d: %s", i, code, raw_refusal());
		raw_publish_end(&p);
	}
}

Test(publishing_bad, garbage_for_the_checker)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);
	int code;

	cr_assert_eq(raw_send_bytes(p.checker, "\xdd\xff\xff\xff\xff", 5, NULL, 0), 0);
	code = raw_code(p.checker);
	cr_assert(code == -EPROTO || code == -ECONNRESET, "%d", code);
	cr_assert_neq(raw_commit(&p), 0);
	raw_publish_end(&p);
	gpuwmd_stop_empty(d);
}

Test(publishing_bad, a_commit_without_a_hand_in)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	close(p.checker);
	p.checker = -1;
	cr_assert_neq(raw_commit(&p), 0);
	raw_publish_end(&p);
	gpuwmd_stop_empty(d);
}

Test(publishing_bad, a_publish_of_somebody_else_is_not_committed_or_aborted)
{
	struct raw_publish p, other;
	struct gpuwmd *d = scene(&p);

	other = p;
	other.sock = raw_client(d->socket);
	cr_assert_eq(raw_commit(&other), -ENOENT, "%s", raw_refusal());
	cr_assert_eq(raw_publish_abort(&other), -ENOENT, "%s", raw_refusal());
	close(other.sock);
	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	raw_publish_end(&p);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
