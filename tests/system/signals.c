/* A worker whose signals interrupt system calls (no SA_RESTART), thousands a second, notices nothing of them. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

SYSTEM_SUITE(signals);

#define EVERY_US 200
#define ROUNDS 20
/* Fewer would be no storm. */
#define SIGNALS_MIN 200

static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
	(void)number;
	signals++;
}

static void storm_begin(void)
{
	const struct itimerval every = {{0, EVERY_US}, {0, EVERY_US}};
	struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */

	CHILD_ASSERT(sigaction(SIGALRM, &action, NULL) == 0);
	CHILD_ASSERT(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void attach_once(struct gpuwm_client *client, const char *device)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.device = device;
	options.populate = backend() == BACKEND_HOST;
	CHILD_ASSERT(gpuwm_attach(client, "m@v1", &options, &mapping) == 0);
	CHILD_ASSERT(mapping_holds(mapping, 1));
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
}

static void publish_once(struct gpuwm_client *client, const char *device, int round)
{
	char name[32];

	snprintf(name, sizeof name, "p@v%d", round);
	CHILD_ASSERT(publish_version(client, device, name, SMALL(2)) == 0);
}

/* argv: the device. */
static int stormy_worker(int argc, char **argv)
{
	storm_begin();
	CHILD_ASSERT(argc == 1);
	for (int i = 0; i < ROUNDS || signals < SIGNALS_MIN; i++) {
		struct gpuwm_client *client;

		CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
		attach_once(client, argv[0]);
		if (i < ROUNDS)
			publish_once(client, argv[0], i);
		gpuwm_close(client);
	}
	return 0;
}

GPUWMD_TEST(signals, a_storm_of_them_reaches_no_call_of_the_library)
{
	struct process worker;
	char tag[16];

	load_small(d, 1);
	worker = process_start(stormy_worker, d->device, NULL);
	process_finish(&worker);
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(tag, sizeof tag, "v%d", i);
		version_drop(d, "p", tag);
	}
	DROP(d, "m@v1");
}
