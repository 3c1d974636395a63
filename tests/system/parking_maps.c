/* Workers that say that they have parked, and keep the memory. */
#include "described.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(parking_maps);

#define LOWER (backend() == BACKEND_HOST ? "files" : "host")
#define MAPS_TEST(name) GPUWMD_TEST_BY(parking_maps, name, tiers_begin(), tiers_end)

/* A worker that has the version's descriptors, until raw_reply_clear(&w.has). */
struct keeper {
	int sock;
	uint64_t lease;
	struct raw_reply has;
};

static void keeper_lease(struct gpuwmd *d, const char *ref, struct keeper *ret)
{
	struct fields f;

	ret->sock = raw_client(d->socket);
	RAW_SEND(ret->sock, 2, "get_handles", TEXT("ref", ref));
	cr_assert(raw_receive(ret->sock, &ret->has));
	cr_assert_eq(ret->has.message.error.code, 0);
	fields_of(&f, ret->has.message.body);
	ret->lease = fields_u64(&f, "lease");
}

static void keeper_park(const struct keeper *keeper)
{
	cr_assert_eq(RAW_ASK(keeper->sock, "park", NUMBER("lease", keeper->lease)), 0);
}

/* From now on it leaves for host without a loader, whose context would hide a small version. */
static void has_host_copy(struct gpuwmd *d, const char *ref)
{
	if (backend() == BACKEND_HOST)
		return;
	demote(d, ref, "host");
	OK(gpuwm_promote_wait(d, ref));
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "contexts") == 0));
}

static bool is_compared(struct gpuwmd *d)
{
	return EVENTUALLY(SOON_MS, device_used(d) == 0);
}

MAPS_TEST(who_keeps_the_memory_is_named)
{
	static struct keeper keeper;
	char words[128];

	has_host_copy(d, "m@v1");
	keeper_lease(d, "m@v1", &keeper);
	keeper_park(&keeper);
	CTL_IS(0, "ps");
	SAYS("parked ");
	demote(d, "m@v1", LOWER);
	cr_assert(is_compared(d));
	cr_assert(backend() == BACKEND_HOST || log_lines(d, "m@v1: a worker that said that it parked") == 1,
		  "its memory was given out before it was missed");
	cr_assert(EVENTUALLY(SOON_MS, log_lines(d, "m@v1: a worker that said that it parked") == 1));
	snprintf(words, sizeof(words), "still has them; end system-tests (pid %d, uid %u)", (int)getpid(),
		 (unsigned)getuid());
	cr_assert_eq(log_lines(d, words), 1, "%s", words);
	CTL_IS(0, "ps");
	SAYS("parked, may map it");

	raw_reply_clear(&keeper.has);
	cr_assert_eq(RAW_ASK(keeper.sock, "unpark", NUMBER("lease", keeper.lease), NUMBER("wait_ms", SOON_MS)),
		     0);
	CTL_IS(0, "ps");
	cr_assert_not(strstr(output, "may map it"), "%s", output);
	close(keeper.sock);
}

/* As a worker of host memory may: the mapping alone. */
GPUWMD_TEST_IF(parking_maps, who_maps_it_is_named,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "of a GPU's memory the kernel lists no mappings"),
	       tiers_begin(), tiers_end)
{
	static struct keeper keeper;

	keeper_lease(d, "m@v1", &keeper);
	for (size_t i = 0; i < keeper.has.packet.fd_count; i++) {
		struct stat info;

		cr_assert_eq(fstat(keeper.has.packet.fds[i], &info), 0);
		cr_assert_neq(
			mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, keeper.has.packet.fds[i], 0),
			MAP_FAILED);
	}
	raw_reply_clear(&keeper.has);
	keeper_park(&keeper);
	demote(d, "m@v1", "files");
	cr_assert(EVENTUALLY(SOON_MS, log_lines(d, "m@v1: a worker that said that it parked") == 1));
	close(keeper.sock);
}

/* Some come from a job's copy, some from their host copy. */
MAPS_TEST(who_has_parked_is_not)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	for (int round = 0; round < 3; round++) {
		OK(gpuwm_park(mapping, 0));
		demote(d, "m@v1", LOWER);
		cr_assert(is_compared(d));
		OK(gpuwm_unpark(mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	}
	cr_assert_eq(log_lines(d, "still has them"), 0);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* Of two versions that leave at once only one has a worker that keeps it: it is one of those that are named. */
MAPS_TEST(one_of_two_is_enough)
{
	static struct keeper keeper;
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	has_host_copy(d, "m@v1");
	has_host_copy(d, "m@v2");
	OK(gpuwm_attach(client, "m@v2", NULL, &mapping));
	OK(gpuwm_park(mapping, 0));
	keeper_lease(d, "m@v1", &keeper);
	keeper_park(&keeper);
	CTL_IS(0, "demote", "m@v1", "--to", LOWER);
	CTL_IS(0, "demote", "m@v2", "--to", LOWER);
	cr_assert(EVENTUALLY(SOON_MS, log_lines(d, "that left it with m@v1: a worker") == 1));
	cr_assert(is_compared(d));
	close(keeper.sock);
	raw_reply_clear(&keeper.has);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v2");
}
