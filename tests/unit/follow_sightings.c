/* What gpuwm-follow reads in gpuwmd's answers, and writes for the hook. */
#include "follow/route.h"
#include "follow/fleet.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define V1 "11111111111111111111111111111111"
#define V2 "22222222222222222222222222222222"
#define LIST                                                                                                   \
	"{'versions': [{'version': '" V1 "', 'model': 'm', 'tag': 'v1'}, {'version': '" V2                     \
	"', 'model': 'm', 'tag': 'v2'}, {'version': '3', 'model': 'other', 'tag': 'v2'}],"                     \
	" 'aliases': [{'model': 'other', 'alias': 'current', 'version': '3'},"                                 \
	" {'model': 'm', 'alias': 'current', 'version': '" V2 "'}]}"
#define LEASE(number, version, more) "{'lease': " number ", 'version': '" version "', 'model': 'm'" more "}"

static struct sightings sightings;

static void end(void)
{
	sightings_clear(&sightings);
}

TestSuite(sightings, .fini = end);

/* JSON with ' for ". */
static json_t *json_of(const char *text)
{
	char *copy = strdup(text);
	json_t *json;

	for (char *c = copy; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	json = json_loads(copy, 0, NULL);
	cr_assert(json, "%s", copy);
	free(copy);
	return json;
}

static void read_of(const char *list_text_, const char *clients_text, const char *name)
{
	json_t *list = json_of(list_text_), *clients = json_of(clients_text);

	sightings_clear(&sightings);
	cr_assert_eq(sightings_read(list, clients, "m", name, &sightings), 0);
	json_decref(list);
	json_decref(clients);
}

Test(sightings, an_alias_or_a_tag_names_the_version)
{
	read_of(LIST, "{}", "current");
	cr_expect_str_eq(sightings.version, V2);
	cr_expect_str_eq(sightings.tag, "v2");
	read_of(LIST, "{}", "v1");
	cr_expect_str_eq(sightings.version, V1);
	read_of(LIST, "{}", "prod");
	cr_expect_str_eq(sightings.version, "");
	cr_expect_str_eq(sightings.tag, "");
}

Test(sightings, addresses_are_those_of_the_model)
{
	read_of(LIST,
		"{'clients': [{'leases': [" LEASE("1", V1, ", 'address': 'a:1'") "," LEASE(
			"2", V2,
			"") "]},"
			    "{'leases': [" LEASE(
				    "3", V2,
				    ", 'address': 'b:1'") ","
							  "{'lease': 4, 'version': '3', 'model': 'other', 'address': 'c:1'}]}]}",
		"current");
	cr_assert_eq(sightings.count, 2);
	cr_expect_str_eq(sightings.items[0].address, "a:1");
	cr_expect_not(sightings.items[0].is_current);
	cr_expect_str_eq(sightings.items[1].address, "b:1");
	cr_expect(sightings.items[1].is_current);
}

Test(sightings, the_newest_lease_of_an_address_counts)
{
	read_of(LIST,
		"{'clients': [{'leases': [" LEASE("7", V2, ", 'address': 'a:1'") "," LEASE(
			"5", V1,
			", 'address': 'a:1'") "," LEASE("1", V2,
							", 'address': 'b:1'") "," LEASE("2", V1,
											", 'address': 'b:1'") "]}]}",
		"current");
	cr_assert_eq(sightings.count, 2);
	cr_expect(sightings.items[0].is_current);
	cr_expect_not(sightings.items[1].is_current);
}

Test(sightings, nobody_serves_a_name_that_names_nothing)
{
	read_of("{'versions': [], 'aliases': []}",
		"{'clients': [{'leases': [{'lease': 1, 'model': 'm', 'address': 'a:1'}]}]}", "current");
	cr_assert_eq(sightings.count, 1);
	cr_expect_not(sightings.items[0].is_current);
}

Test(sightings, the_hooks_list_has_all_backends)
{
	struct route routes[] = {{.model = "m", .name = "prod", .backend = "b", .version = V1, .tag = "v1"},
				 {.model = "n", .name = "current", .backend = "c"}};
	char *text;

	fleet_adopt(&routes[0].fleet, "b:1", SERVER_DRAIN, 0);
	fleet_adopt(&routes[0].fleet, "a:1", SERVER_READY, 0);
	text = list_text(routes, 2);
	cr_expect_str_eq(text,
			 "{\"backends\":[{\"model\":\"m\",\"name\":\"prod\",\"backend\":\"b\",\"version\":\"" V1
			 "\",\"tag\":\"v1\",\"servers\":[{\"address\":\"a:1\",\"state\":\"ready\"},"
			 "{\"address\":\"b:1\",\"state\":\"drain\"}]},{\"model\":\"n\",\"name\":\"current\","
			 "\"backend\":\"c\",\"version\":null,\"tag\":null,\"servers\":[]}]}");
	free(text);
	fleet_clear(&routes[0].fleet);
}

Test(sightings, what_is_parked_serves_nobody)
{
	read_of(LIST,
		"{'clients': [{'leases': [" LEASE("1", V2, ", 'address': 'a:1', 'parked': true") ", " LEASE(
			"2", V2, ", 'address': 'b:1'") "]}]}",
		"current");
	cr_assert_eq(sightings.count, 1);
	cr_expect_str_eq(sightings.items[0].address, "b:1");
}
