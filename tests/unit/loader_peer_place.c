/* Where a load from a peer may take from. */
#include "loader/peer/peer_dial.h"
#include "service/peers.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct peer_places places;
static struct peer_settings settings;
static struct error error;

static void set(const char *key, const char *value)
{
	cr_assert_eq(peer_settings_set(&settings, key, value, &error), 0, "%s", error.message);
}

static void end(void)
{
	peer_settings_clear(&settings);
}

TestSuite(places, .fini = end);

Test(places, are_the_one_that_the_source_names)
{
	set("peer", "other");
	cr_assert_eq(peer_places_find("peer://node7:1234/m@v1", &settings, false, &places, &error), 0);
	cr_assert_eq(places.count, 1);
	cr_expect_str_eq(places.items[0].host, "node7");
	cr_expect_eq(places.items[0].port, 1234);
	cr_expect_str_eq(places.ref, "m@v1");
}

Test(places, have_the_usual_port)
{
	cr_assert_eq(peer_places_find("peer://[fd00::7]/m", &settings, false, &places, &error), 0, "%s",
		     error.message);
	cr_expect_str_eq(places.items[0].host, "fd00::7");
	cr_expect_eq(places.items[0].port, PEER_PORT);
}

Test(places, are_all_peers_of_the_settings_if_none_is_named)
{
	set("peer", "node1");
	set("peer", "node2:99");
	set("dns", "localhost:77");
	cr_assert_eq(peer_places_find("peer:///m@v1", &settings, false, &places, &error), 0);
	cr_assert_geq(places.count, 3);
	cr_expect_str_eq(places.items[0].host, "node1");
	cr_expect_null(peer_place_target(&places.items[0]).name);
	cr_expect_eq(places.items[1].port, 99);
	cr_expect_str_eq(peer_place_target(&places.items[2]).name, "localhost", "the certificate's name");
	cr_expect_eq(places.items[2].port, 77);
}

Test(places, are_asked_once_and_a_long_list_keeps_no_name_out)
{
	char name[16];

	for (int i = 0; i < PEER_LIST_MAX; i++) {
		snprintf(name, sizeof(name), "node%d", i / 2);
		set("peer", name);
	}
	set("dns", "localhost:77");
	cr_assert_eq(peer_places_find("peer:///m@v1", &settings, false, &places, &error), 0);
	cr_assert_gt(places.count, PEER_LIST_MAX / 2);
	cr_expect_leq(places.count, PEER_LIST_MAX / 2 + 2, "127.0.0.1 and ::1");
	cr_expect_eq(places.items[places.count - 1].port, 77);
	cr_expect_eq(places.more, 0);
}

Test(places, are_those_of_two_full_lists)
{
	char name[24];

	for (int i = 0; i < PEER_LIST_MAX; i++) {
		snprintf(name, sizeof(name), "node%d", i);
		set("peer", name);
		snprintf(name, sizeof(name), "localhost:%d", i + 1);
		set("dns", name);
	}
	cr_assert_eq(peer_places_find("peer:///m@v1", &settings, false, &places, &error), 0);
	cr_expect_geq(places.count, 2 * PEER_LIST_MAX, "no list keeps the other one out");
	cr_expect_eq(places.more, 0);
}

Test(places, are_missing_where_no_peer_is_configured)
{
	set("dns", "no-such-name.invalid");
	cr_expect_eq(peer_places_find("peer:///m@v1", &settings, false, &places, &error), -ENOENT);
	cr_expect(strstr(error.detail, "[peers]"));
	cr_expect(strstr(error.message, "no-such-name.invalid has no address"), "%s", error.message);
}

Test(places, are_refused_if_the_source_is_malformed)
{
	static const char *const wrong[] = {"peer://",        "peer://node7",       "peer://node7/",
					    "peer://a:b:c/m", "peer://node7:0/m@v", "peer://node7/m@v@w",
					    "peer:////m@v"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_expect_eq(peer_places_find(wrong[i], &settings, false, &places, &error), -EINVAL, "%s",
			     wrong[i]);
}

Test(places, are_asked_for_by_a_source_with_the_scheme_only)
{
	cr_expect(peer_source("peer://node7/m"));
	cr_expect_not(peer_source("/models/peer://"));
}

Test(places, fingerprints_are_64_digits)
{
	cr_expect(peer_fingerprint("00ff7f80a5000000000000000000000000000000000000000000000000000ABC"));
	cr_expect_not(peer_fingerprint("00ff7f80a5000000000000000000000000000000000000000000000000000AB"));
	cr_expect_not(peer_fingerprint("00ff7f80a5000000000000000000000000000000000000000000000000000ABg"));
}
