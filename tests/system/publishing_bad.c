/* Publishers that lie: the checker says so, and the daemon does not care. */
#include "raw.h"

#include <fcntl.h>
#include <stdio.h>
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

/* Hands in and commits: refused with this code and these words, and all is given back. */
static void refused(struct gpuwmd *d, struct raw_publish *p, int code, const char *words)
{
	int got = raw_hand_in(p);

	if (got == 0)
		got = raw_commit(p);
	cr_assert_eq(got, code, "%d: %s", got, raw_refusal());
	cr_assert(strstr(raw_refusal(), words), "'%s' does not say '%s'", raw_refusal(), words);
	/* Before the connection ends: then its grant would wait for the end of this process. */
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed")));
	raw_publish_end(p);
	gpuwmd_stop_empty(d);
}

Test(publishing_bad, a_right_one_is_accepted_without_the_library)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	cr_assert(version_is(d, "m", "v1", "ready"));
	raw_publish_end(&p);
	version_drop(d, "m", "v1");
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
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(publishing_bad, a_wrong_digest_of_a_tensor)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	/* The index says 0x5a; these are zeros. */
	close(p.segment);
	p.segment = raw_memfd(p.bytes, true);
	refused(d, &p, -EBADMSG, "t");
}

Test(publishing_bad, a_wrong_content_digest)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	p.content[3] ^= 1;
	refused(d, &p, -EBADMSG, "content");
}

Test(publishing_bad, a_segment_smaller_than_said)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	close(p.segment);
	p.segment = raw_memfd(KB(4), true);
	refused(d, &p, -EBADMSG, "65536");
}

Test(publishing_bad, a_segment_larger_than_said)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	close(p.segment);
	p.segment = raw_memfd(KB(128), true);
	refused(d, &p, -EBADMSG, "65536");
}

Test(publishing_bad, sizes_that_differ_from_the_index)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	close(p.segment);
	p.bytes = KB(32);
	p.segment = raw_memfd(p.bytes, true);
	refused(d, &p, -EBADMSG, "");
}

Test(publishing_bad, a_memfd_that_is_still_writable)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	close(p.segment);
	p.segment = raw_memfd(p.bytes, false);
	refused(d, &p, -EBADMSG, "seal");
}

Test(publishing_bad, an_index_that_is_still_writable)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);
	int unsealed = raw_memfd(0, false);
	static char copy[65536];
	ssize_t bytes = pread(p.index, copy, sizeof copy, 0);

	cr_assert_eq(write(unsealed, copy, (size_t)bytes), bytes);
	close(p.index);
	p.index = unsealed;
	refused(d, &p, -EBADMSG, "seal");
}

/* Flips a byte of the index at this place and seals it again. */
static void index_damage(struct raw_publish *p, size_t offset, uint8_t with)
{
	static char copy[65536];
	ssize_t bytes = pread(p->index, copy, sizeof copy, 0);
	int damaged = raw_memfd(0, false);

	copy[offset] ^= (char)with;
	cr_assert_eq(write(damaged, copy, (size_t)bytes), bytes);
	cr_assert(fcntl(damaged, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0);
	close(p->index);
	p->index = damaged;
}

Test(publishing_bad, an_index_that_points_outside_its_segments)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	/* The tensor's offset: after the header and one segment. */
	index_damage(&p,
		     sizeof(struct index_header) + sizeof(struct index_segment) +
			     offsetof(struct index_tensor, offset) + 5,
		     0x7f);
	refused(d, &p, -EBADMSG, "");
}

Test(publishing_bad, an_index_with_no_magic)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	index_damage(&p, 0, 0xff);
	refused(d, &p, -EBADMSG, "");
}

Test(publishing_bad, every_byte_of_the_header_counts)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	for (size_t i = 0; i < sizeof(struct index_header); i += 8) {
		struct raw_publish p;
		int code;

		cr_assert_eq(raw_publish_begin(&p, "m@v1", KB(4)), 0, "%s", raw_refusal());
		raw_publish_fill(&p);
		index_damage(&p, i, 0x80);
		code = raw_hand_in(&p);
		if (code == 0)
			code = raw_commit(&p);
		cr_assert_eq(code, -EBADMSG, "byte %zu: %d: %s", i, code, raw_refusal());
		raw_publish_end(&p);
	}
	gpuwmd_stop_empty(d);
}

static void foreign_segment(int fd)
{
	struct raw_publish p;
	struct gpuwmd *d = scene(&p);

	cr_assert(fd >= 0);
	close(p.segment);
	p.segment = fd;
	refused(d, &p, -EBADMSG, "");
}

Test(publishing_bad, a_descriptor_that_nothing_names)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct raw_publish p;

	cr_assert_eq(raw_publish_begin(&p, "m@v1", MB(1)), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	p.surplus = true;
	refused(d, &p, -EBADMSG, "descriptors");
}

Test(publishing_bad, dev_null_is_no_segment)
{
	foreign_segment(open("/dev/null", O_RDWR | O_CLOEXEC));
}

Test(publishing_bad, a_pipe_is_no_segment)
{
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	foreign_segment(ends[0]);
	close(ends[1]);
}

Test(publishing_bad, a_file_of_a_disk_is_no_segment)
{
	struct gpuwmd folder;
	char path[128];

	folder_make(&folder);
	snprintf(path, sizeof path, "%s/file", folder.dir);
	foreign_segment(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

Test(publishing_bad, more_than_was_granted)
{
	struct raw_publish p, larger;
	struct gpuwmd *d = scene(&p);

	close(p.segment);
	close(p.index);
	larger = p;
	larger.bytes = KB(128);
	raw_publish_fill(&larger);
	refused(d, &larger, -EBADMSG, "");
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
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}
