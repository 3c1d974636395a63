/* Who gets requests, and who drains. */
#include "follow/fleet.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct fleet fleet;
static char told[1000]; /* what fleet_update told: "a serves, b drains" */

static void end(void)
{
	fleet_clear(&fleet);
}

TestSuite(fleet, .fini = end);

static void tell(void *data, const char *address, enum fleet_change change)
{
	static const char *const words[] = {"serves", "drains", "returns", "removed", "missed"};
	size_t used = strlen(told);

	(void)data;
	snprintf(told + used, sizeof(told) - used, "%s%s %s", used ? ", " : "", address, words[change]);
}

/* Each letter is a worker's address: in capitals if it serves the current version. */
static const char *update_at(uint64_t now_ms, const char *letters)
{
	struct sighting sightings[26] = {0};
	size_t count = strlen(letters);

	for (size_t i = 0; i < count; i++) {
		sightings[i].address[0] = (char)(letters[i] | 0x20);
		sightings[i].is_current = !(letters[i] & 0x20);
	}
	told[0] = '\0';
	cr_assert_eq(fleet_update(&fleet, sightings, count, now_ms, tell, NULL), 0);
	return told;
}

static const char *update(const char *letters)
{
	return update_at(1000, letters);
}

/* Who is in the fleet: in capitals who gets requests. */
static const char *members(void)
{
	static char letters[27];

	memset(letters, 0, sizeof(letters));
	for (size_t i = 0; i < fleet.count; i++)
		letters[i] = (char)(fleet.servers[i].address[0] &
				    (fleet.servers[i].state == SERVER_READY ? ~0x20 : ~0));
	return letters;
}

Test(fleet, who_serves_the_version_of_now_gets_requests)
{
	cr_expect_str_eq(update("A"), "a serves");
	cr_expect_str_eq(update("AB"), "b serves");
	cr_expect_str_eq(update("AB"), "");
	cr_expect_str_eq(members(), "AB");
	cr_expect_eq(fleet_count(&fleet, SERVER_READY), 2);
	cr_expect_eq(fleet_count(&fleet, SERVER_DRAIN), 0);
}

Test(fleet, workers_of_other_versions_stay_outside)
{
	cr_expect_str_eq(update("xA"), "a serves");
	cr_expect_str_eq(members(), "A");
	cr_expect_str_eq(update("x"), "a removed", "and x belongs to another route");
	cr_expect_str_eq(members(), "");
}

Test(fleet, old_ones_go_on_until_the_first_new_one_is_there)
{
	update("AB");
	cr_expect_str_eq(update("ab"), "");
	cr_expect_str_eq(members(), "AB");
	cr_expect_str_eq(update("aBC"), "c serves, a drains");
	cr_expect_str_eq(members(), "aBC");
	cr_expect_str_eq(update("ABC"), "a serves");
	cr_expect_str_eq(update("BC"), "a removed");
	cr_expect_str_eq(members(), "BC");
}

Test(fleet, those_that_drain_return_when_nobody_else_is_left)
{
	update("AB");
	update("abC");
	cr_expect_str_eq(members(), "abC");
	cr_expect_str_eq(update("ab"), "c removed, a returns, b returns");
	cr_expect_str_eq(members(), "AB");
	cr_expect_str_eq(update("abC"), "c serves, a drains, b drains");
}

Test(fleet, what_a_load_balancer_had_waits_for_gpuwmd)
{
	cr_assert_eq(fleet_adopt(&fleet, "a", SERVER_READY, 5000), 0);
	cr_assert_eq(fleet_adopt(&fleet, "b", SERVER_DRAIN, 5000), 0);
	cr_assert_eq(fleet_adopt(&fleet, "b", SERVER_READY, 5000), 0);
	cr_expect(fleet_is_in_doubt(&fleet));
	cr_expect_str_eq(update_at(4999, ""), "");
	cr_expect_str_eq(members(), "Ab");
	cr_expect_str_eq(update_at(4999, "b"), "", "b serves an older version, and drained");
	cr_expect_str_eq(update_at(5000, "b"), "a missed, b returns");
	cr_expect_not(fleet_is_in_doubt(&fleet));
}

Test(fleet, a_restart_of_gpuwmd_takes_nobody_away)
{
	update("ABC");
	fleet_doubt(&fleet, 3000);
	cr_expect_str_eq(update_at(1000, ""), "");
	cr_expect_str_eq(update_at(2000, "AD"), "d serves");
	cr_expect_str_eq(members(), "ABCD");
	cr_expect_str_eq(update_at(2000, "D"), "a removed", "gpuwmd had told of it again");
	cr_expect_str_eq(update_at(2500, "bD"), "b drains");
	cr_expect_str_eq(update_at(3000, "bD"), "c missed");
	cr_expect_not(fleet_is_in_doubt(&fleet));
}

Test(fleet, grows)
{
	char letters[27] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	update(letters);
	cr_expect_str_eq(members(), letters);
	fleet_clear(&fleet);
	cr_expect_eq(fleet.count, 0);
}
