/* A reader that exits at one moment of an offer, which the program's clock tells. */
#include "tests/support/any/fd_count.h"
#include "tests/support/lib/pools.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWNER 0
#define GOES 9

static struct shared_region shared;
static bool exits_at_look;

/* An offer looks at the clock after it has looked whether the readers are there, and before it names them. */
int clock_gettime(clockid_t id, struct timespec *ret)
{
	if (exits_at_look && id == CLOCK_BOOTTIME) {
		exits_at_look = false;
		control_user_left(&shared.control, GOES);
	}
	return (int)syscall(SYS_clock_gettime, id, ret);
}

/* The owner has looked whether the reader is there; then the reader exits, and gpuwmd clears all words; then the owner names it. */
Test(chunk_exit, a_reader_that_exits_before_it_is_named_is_not_waited_for)
{
	const struct gpuwm_readers readers = {UINT32_C(1) << GOES, 0};
	const int fds = fd_count();
	struct gpuwm_region *pool;
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;

	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared, OWNER, true);
	control_user_came(&shared.control, GOES, 1, "gone");
	chunk = alloc(pool, 1);
	exits_at_look = true;
	OK(gpuwm_chunk_offer(chunk, &readers, &token));
	cr_assert(not(exits_at_look));
	cr_assert(control_chunk_is_free(&shared.control, token.chunk));
	all_is_free(pool);
	close_as(&shared, pool);
	share_end(&shared);
	if (pools_on_host())
		cr_assert(eq(int, fd_count(), fds));
}
