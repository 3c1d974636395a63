/* Each allocation of gpuwm-follow's plain parts fails once. */
#include "follow/route.h"
#include "follow/slots.h"
#include "follow/fleet.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MANY 20 /* more than a fleet has room for at first */

/* Evaluates the call with each of its allocations failing once, until none fails. `undone` must hold after each failure. */
#define FAIL_EACH(call, undone)                                                                                \
	do {                                                                                                   \
		bool failed_ = true;                                                                           \
		unsigned n_;                                                                                   \
		for (n_ = 1; failed_; n_++) {                                                                  \
			int r_;                                                                                \
			fail_alloc_arm(n_);                                                                    \
			r_ = (call);                                                                           \
			failed_ = fail_alloc_disarm();                                                         \
			cr_assert_eq(r_, failed_ ? -ENOMEM : 0, "allocation %u: %d", n_, r_);                  \
			cr_assert(!failed_ || (undone), "allocation %u", n_);                                  \
		}                                                                                              \
		cr_assert_gt(n_, 2, "it allocates");                                                           \
	} while (0)

Test(follow_no_memory, a_fleet_stays_as_it_was)
{
	struct sighting sightings[MANY];
	struct fleet fleet = {0};

	for (int i = 0; i < MANY; i++)
		sightings[i] = (struct sighting){.address = {(char)('a' + i)}, .is_current = true};
	FAIL_EACH(fleet_update(&fleet, sightings, MANY, 0, NULL, NULL), fleet.count == 0);
	cr_expect_eq(fleet.count, MANY);
	fleet_clear(&fleet);
	FAIL_EACH(fleet_adopt(&fleet, "a", SERVER_READY, 0), fleet.count == 0);
	fleet_clear(&fleet);
}

static struct slots slots;

static int read_slots(void)
{
	char text[] = "1\n# srv_name srv_addr srv_admin_state srv_port\nw1 10.0.0.1 0 80\nw2 10.0.0.2 0 80\n";

	return slots_read(text, &slots);
}

Test(follow_no_memory, slots_and_commands_are_whole_or_not_there)
{
	struct commands commands = {0};
	struct fleet fleet = {0};

	FAIL_EACH(read_slots(), slots.count == 0 && !slots.items);
	fleet_adopt(&fleet, "10.0.0.3:80", SERVER_READY, 0);
	FAIL_EACH(reconcile("b", &fleet, &slots, &commands), !commands.items);
	commands_clear(&commands);
	slots_clear(&slots);
	fleet_clear(&fleet);
}

Test(follow_no_memory, sightings_are_whole_or_not_there)
{
	json_t *list = json_loads("{}", 0, NULL);
	json_t *clients = json_loads("{\"clients\": [{\"leases\": [{\"model\": \"m\", \"address\": \"a:1\"},"
				     "{\"model\": \"m\", \"address\": \"b:1\"}]}]}",
				     0, NULL);
	struct sightings sightings;

	FAIL_EACH(sightings_read(list, clients, "m", "current", &sightings), !sightings.items);
	cr_expect_eq(sightings.count, 2);
	sightings_clear(&sightings);
	json_decref(list);
	json_decref(clients);
}

Test(follow_no_memory, there_is_no_part_of_a_list)
{
	struct route route = {.ref = "m", .model = "m", .name = "current", .backend = "b"};
	bool failed = true;
	char *whole, *text;

	fleet_adopt(&route.fleet, "a:1", SERVER_READY, 0);
	fleet_adopt(&route.fleet, "b:1", SERVER_DRAIN, 0);
	whole = list_text(&route, 1);
	for (unsigned n = 1; failed; n++) {
		fail_alloc_arm(n);
		text = list_text(&route, 1);
		failed = fail_alloc_disarm();
		cr_assert(!text || strcmp(text, whole) == 0, "allocation %u: %s", n, text);
		free(text);
	}
	free(whole);
	fleet_clear(&route.fleet);
}
