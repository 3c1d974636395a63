/* gpuwmd of this version, then the next one, whose state has another format, then this one again. */
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(upgrade);

/* What starts next is the next version, once. */
static void next_version(const struct gpuwmd *d)
{
	char line[512];

	snprintf(line, sizeof line, "program %s/tests/next/gpuwmd\n", build_path());
	kept_act(d, line);
}

static bool is_next_version(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL);
	const char *server = json_string_value(json_object_get(status, "server"));
	bool next = server && strstr(server, "-next");

	json_decref(status);
	return next;
}

/* The older one leaves alone what the next one wrote, and says why. */
static void check_locked(struct gpuwmd *d, uint64_t memory)
{
	json_t *status = query(d->admin, "status", NULL), *locked = json_object_get(status, "locked");
	const char *message = json_string_value(json_object_get(locked, "message"));
	struct gpuwm_mapping *mapping;

	cr_assert(message && strstr(message, "the state is of format 2, this gpuwmd reads up to 1"), "%s",
		  message);
	json_decref(status);
	FAILS(EUCLEAN, gpuwm_attach(d->admin, "m", NULL, &mapping));
	FAILS(EUCLEAN, gpuwm_pin(d->admin, "m@v2", "locked"));
	cr_assert_eq(kept_memory(d), memory);
}

GPUWMD_TEST_BY(upgrade, to_the_next_format_and_not_back, gpuwmd_start_kept(&(struct kept){.acts = true}),
	       gpuwmd_stop_empty)
{
	char *before, *after;
	uint64_t memory;

	load_small(d, 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	cr_assert(!is_next_version(d));
	before = kept_registry(d);
	memory = kept_memory(d);

	next_version(d);
	kept_kill(d, SIGTERM);
	cr_assert(is_next_version(d));
	after = kept_registry(d);
	cr_assert_str_eq(after, before, "the older format is read");
	cr_assert_eq(kept_memory(d), memory);
	free(before);
	free(after);
	OK(swap_to(d, "m", "v2", false));
	before = kept_registry(d);

	kept_kill(d, SIGKILL);
	cr_assert(!is_next_version(d));
	check_locked(d, memory);
	kept_kill(d, SIGKILL);
	check_locked(d, memory);

	next_version(d);
	kept_kill(d, SIGKILL);
	cr_assert(is_next_version(d));
	after = kept_registry(d);
	cr_assert_str_eq(after, before, "nothing was touched");
	cr_assert_eq(kept_memory(d), memory);
	free(before);
	free(after);
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	DROP(d, "m@v1", "m@v2");
}
