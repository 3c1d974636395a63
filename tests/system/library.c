/* What the library promises to a program that uses it, with a real gpuwmd. The unit tests lib_* have the rest. */
#include "harness.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(library);

static struct gpuwmd *start_with_one(void)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	load_small(d, 1);
	return d;
}

static void stop_with_one(struct gpuwmd *d)
{
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- children --------------------------------------------------------- */

GPUWMD_TEST_BY(library, a_child_that_execs_leaves_the_parents_lease_alone, start_with_one(), stop_with_one)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	OK(gpuwm_attach(client, "m", NULL, &mapping));
	cr_assert_eq(system("true"), 0);
	cr_assert_eq(status_of(d, "leases"), 1);
	cr_assert(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* ---- attaching -------------------------------------------------------- */

GPUWMD_TEST_BY(library, handles_are_freed_in_any_order, start_with_one(), stop_with_one)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *first, *second;
	struct gpuwm_handles *handles;

	OK(gpuwm_attach(client, "m", NULL, &first));
	OK(gpuwm_get_handles(client, "m", NULL, &handles));
	OK(gpuwm_attach(client, "m", NULL, &second));
	gpuwm_close(client);
	OK(gpuwm_detach(second));
	cr_assert(mapping_holds(first, 1));
	OK(gpuwm_detach(first));
	OK(gpuwm_handles_release(handles));
}

GPUWMD_TEST_BY(library, thousands_of_attaches_leave_no_descriptor_and_no_mapping, start_with_one(),
	       stop_with_one)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	size_t fds = 0;

	for (int i = 0; i < 1000; i++) {
		OK(gpuwm_attach(client, "m", NULL, &mapping));
		OK(gpuwm_detach(mapping));
		if (i == 0)
			fds = fds_of(getpid());
	}
	cr_assert_eq(fds_of(getpid()), fds);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(library, a_relative_socket_is_found_from_another_folder, start_with_one(), stop_with_one)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	struct gpuwm_events *events;
	char *folder = strdup(d->socket);

	*strrchr(folder, '/') = 0;
	OK(chdir(folder));
	options.socket = strrchr(d->socket, '/') + 1;
	OK(gpuwm_connect(&options, &client));
	OK(chdir("/"));
	OK(gpuwm_events_open(client, UINT64_MAX, &events)); /* a connection of its own */
	gpuwm_events_close(events);
	gpuwm_close(client);
	free(folder);
}

/* Some write there what they do, over the memory of argv[0]: bytes of any kind, cut anywhere. */
GPUWMD_TEST_BY(library, a_long_name_of_a_program_is_told_as_far_as_it_fits, start_with_one(), stop_with_one)
{
	char *name = program_invocation_short_name, longer[200];
	struct gpuwm_client *client;

	memset(longer, '\xc3', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	program_invocation_short_name = longer;
	OK(gpuwm_connect(NULL, &client));
	program_invocation_short_name = name;
	OK(gpuwm_ping(client, NULL));
	gpuwm_close(client);
}

GPUWMD_TEST_BY(library, what_is_not_there_is_said, start_with_one(), stop_with_one)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	FAILS(ENOENT, gpuwm_attach(client, "nobody", NULL, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "nobody"));
	FAILS(ENOENT, gpuwm_attach(client, "m@v9", NULL, &mapping));
	FAILS(ENOENT, gpuwm_attach(client, "00112233445566778899aabbccddeeff", NULL, &mapping));
	FAILS(EINVAL, gpuwm_attach(client, "../m", NULL, &mapping));
	options.device = "GPU-00000000-0000-0000-0000-000000000000";
	FAILS(ENODEV, gpuwm_attach(client, "m", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, d->device) || strstr(gpuwm_error()->detail, d->device),
		  "%s (%s)", gpuwm_error()->message, gpuwm_error()->detail);
	options.device = NULL;
	options.size = 3;
	FAILS(EINVAL, gpuwm_attach(client, "m", &options, &mapping));
	gpuwm_close(client);
}

/* ---- waiting ---------------------------------------------------------- */

GPUWMD_TEST_BY(library, waiting_for_a_version_ends_when_it_is_published, gpuwmd_start(NULL), stop_with_one)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	uint64_t job;

	OK(load_start(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1", NULL, &job));
	options.wait_ms = 20000;
	OK(gpuwm_attach(client, "m@v1", &options, &mapping));
	cr_assert(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* ---- events ----------------------------------------------------------- */

struct seen {
	unsigned count;
	char kinds[1024];
	uint64_t seq;
};

static void event_note(const struct gpuwm_event *event, void *user_data)
{
	struct seen *seen = user_data;

	seen->count++;
	seen->seq = event->seq;
	snprintf(seen->kinds + strlen(seen->kinds), sizeof seen->kinds - strlen(seen->kinds), "%s %s@%s;",
		 event->kind, event->model, strcmp(event->kind, "swapped") == 0 ? event->alias : event->tag);
}

static bool events_bring(struct gpuwm_events *events, struct seen *seen, const char *what)
{
	return EVENTUALLY(SOON_MS, gpuwm_events_dispatch(events, 50, event_note, seen) < 0 ||
					   strstr(seen->kinds, what) != NULL) &&
	       strstr(seen->kinds, what);
}

GPUWMD_TEST_BY(library, events_tell_of_swaps_and_of_frees, start_with_one(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_events *events;
	struct seen seen = {0};
	struct pollfd ready;

	OK(gpuwm_events_open(client, UINT64_MAX, &events));
	cr_assert_eq(gpuwm_events_dispatch(events, 0, event_note, &seen), 0);
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	ready = (struct pollfd){.fd = gpuwm_events_get_fd(events), .events = gpuwm_events_get_events(events)};
	cr_assert_eq(poll(&ready, 1, SOON_MS), 1);
	cr_assert(events_bring(events, &seen, "version_ready m@v2;"), "%s", seen.kinds);
	OK(swap_to(d, "m", "v2", true));
	cr_assert(events_bring(events, &seen, "swapped m@current;"), "%s", seen.kinds);
	cr_assert(events_bring(events, &seen, "version_freed m@v1;"), "%s", seen.kinds);
	gpuwm_events_close(events);
	gpuwm_close(client);
	DROP(d, "m@v2");
}
