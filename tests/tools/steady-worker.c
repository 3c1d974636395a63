/* A worker that reads on, whatever happens to gpuwmd: attaches, sums all bytes, and does so again until
 * ROUNDS are done or SIGTERM comes. Fails when a sum is not the first one's.
 *
 *   steady-worker REF [ROUNDS]
 *
 * Prints "attached VERSION TIME" (of day, with microseconds) and, at its end, "N rounds, N errors".
 */
#include <gpuwm/client.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUND_PAUSE_NS 10000000 /* it reads all the time, but leaves others some of two cores */

static volatile sig_atomic_t stopped;

static void on_term(int number)
{
	(void)number;
	stopped = 1;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	return 1;
}

static int sum_tensors(const struct gpuwm_mapping *mapping, uint64_t *ret_sum)
{
	unsigned char buffer[65536];
	struct gpuwm_tensor tensor;
	uint64_t sum = 0, size;

	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		for (uint64_t done = 0; done < tensor.bytes; done += size) {
			size = tensor.bytes - done < sizeof buffer ? tensor.bytes - done : sizeof buffer;
			if (gpuwm_tensor_read(mapping, &tensor, done, buffer, size) < 0)
				return -1;
			for (uint64_t k = 0; k < size; k++)
				sum = sum * 31 + buffer[k];
		}
	}
	*ret_sum = sum;
	return 0;
}

static int read_on(const struct gpuwm_mapping *mapping, uint64_t rounds)
{
	const struct timespec pause = {.tv_nsec = ROUND_PAUSE_NS};
	uint64_t first = 0, sum, done = 0, errors = 0;

	while (!stopped && done < rounds) {
		if (sum_tensors(mapping, &sum) < 0)
			return fail("reading");
		first = done++ ? first : sum;
		errors += sum != first;
		if (done < rounds)
			nanosleep(&pause, NULL);
	}
	printf("%" PRIu64 " rounds, %" PRIu64 " errors\n", done, errors);
	return errors != 0;
}

int main(int argc, char **argv)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	struct timespec now;
	int r;

	if (argc < 2)
		return fprintf(stderr, "usage: %s REF [ROUNDS]\n", argv[0]), 2;
	signal(SIGTERM, on_term);
	if (gpuwm_connect(NULL, &client) < 0)
		return fail("connect");
	if (gpuwm_attach(client, argv[1], NULL, &mapping) < 0)
		return fail("attach");
	clock_gettime(CLOCK_REALTIME, &now);
	printf("attached %s %lld.%06ld\n", gpuwm_mapping_version(mapping)->id, (long long)now.tv_sec,
	       now.tv_nsec / 1000);
	fflush(stdout);
	r = read_on(mapping, argc > 2 ? strtoull(argv[2], NULL, 10) : UINT64_MAX);
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return r;
}
