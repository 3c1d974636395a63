/* A process that owns a pool and offers a chunk, which nobody reads, until SIGTERM comes, whatever happens to gpuwmd.
 *
 *   steady-pool NAME
 *
 * Prints "made" when the pool is there. At its end it fails if the pool has ended.
 */
#include <gpuwm/region.h>

#include <signal.h>
#include <stdio.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	return 1;
}

int main(int argc, char **argv)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	const struct gpuwm_readers readers = {.others = 1};
	struct gpuwm_client *client;
	struct gpuwm_region *pool;
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;
	sigset_t signals;
	int number;

	if (argc != 2)
		return 2;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	options.name = argv[1];
	options.bytes = 1 << 20;
	if (gpuwm_connect(NULL, &client) < 0 || gpuwm_region_create(client, &options, &pool) < 0)
		return fail("making a pool");
	if (gpuwm_chunk_alloc(pool, 4096, 0, &chunk) < 0 || gpuwm_chunk_offer(chunk, &readers, &token) < 0)
		return fail("offering a chunk");
	puts("made");
	fflush(stdout);
	sigwait(&signals, &number);
	if (gpuwm_region_check(pool) < 0)
		return fail("looking at the pool");
	gpuwm_region_close(pool);
	gpuwm_close(client);
	return 0;
}
