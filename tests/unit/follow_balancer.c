/* gpuwm-follow and a HAProxy that is right, wrong, silent or away. */
#include "follow/balancer.h"
#include "tests/support/follow/haproxy.h"

#include <criterion/redirect.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fake_haproxy *fake;
static struct balancer balancer;
static struct route route;

static void begin(void)
{
	cr_redirect_stderr(); /* troubles are looked at in their structs */
	fake = fake_haproxy_start();
	balancer = (struct balancer){.socket = fake->path};
	route = (struct route){.ref = "m@prod", .backend = "b"};
}

static void end(void)
{
	fleet_clear(&route.fleet);
	if (fake)
		fake_haproxy_stop(fake);
}

TestSuite(balancer, .init = begin, .fini = end, .timeout = 60);

static void wanted(const char *address, enum server_state state)
{
	cr_assert_eq(fleet_adopt(&route.fleet, address, state, 0), 0);
}

static void has(int slot, enum slot_state state, const char *ip, unsigned port)
{
	fake->slots[slot].state = state;
	strcpy(fake->slots[slot].ip, ip);
	fake->slots[slot].port = port;
}

static bool complains(const struct trouble *trouble, const char *part)
{
	return strstr(trouble->text, part) != NULL;
}

Test(balancer, haproxy_becomes_what_the_fleet_is)
{
	has(3, SLOT_READY, "10.0.0.9", 80);
	wanted("10.0.0.1:80", SERVER_READY);
	wanted("[::1]:81", SERVER_DRAIN);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(fake_haproxy_slots(fake), "w1 ready 10.0.0.1:80, w2 drain ::1:81");
	cr_expect_eq(fake->commands, 5);
	balancer_apply(&balancer, &route);
	cr_expect_eq(fake->commands, 5, "it is right already");
	cr_expect_str_eq(route.refused.text, "");
}

Test(balancer, a_tcp_socket_does_too)
{
	balancer.socket = fake->address;
	wanted("10.0.0.1:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(fake_haproxy_slots(fake), "w1 ready 10.0.0.1:80");
}

Test(balancer, a_slot_that_leaves_is_used_in_the_next_round)
{
	for (int i = 0; i < FAKE_SLOTS; i++)
		has(i, SLOT_READY, "10.0.0.9", 80 + (unsigned)i);
	wanted("10.0.0.1:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(fake_haproxy_slots(fake), "w1 ready 10.0.0.1:80");
	cr_expect_str_eq(route.full.text, "", "nobody is left without a slot");
}

Test(balancer, servers_without_a_place_are_told)
{
	for (int i = 0; i < FAKE_SLOTS + 2; i++) {
		char address[32];

		snprintf(address, sizeof(address), "10.0.0.%d:80", i);
		wanted(address, SERVER_READY);
	}
	wanted("worker-5:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	cr_expect(complains(&route.full, "2 servers of m@prod"), "%s", route.full.text);
	cr_expect(complains(&route.odd, "worker-5:80"), "%s", route.odd.text);
	fleet_clear(&route.fleet);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(route.full.text, "");
	cr_expect_str_eq(route.odd.text, "");
}

Test(balancer, a_haproxy_that_lost_its_servers_is_told_of)
{
	balancer.state_file = "/run/state";
	wanted("10.0.0.1:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(route.forgotten.text, "", "it had none");
	has(0, SLOT_MAINT, "127.0.0.1", 1);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(fake_haproxy_slots(fake), "w1 ready 10.0.0.1:80");
	cr_expect(complains(&route.forgotten, "`server-state-file /run/state`"), "%s", route.forgotten.text);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(route.forgotten.text, "", "it has them again");
	fleet_clear(&route.fleet);
	balancer_apply(&balancer, &route);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(route.forgotten.text, "", "they were removed");
}

Test(balancer, what_it_had_is_adopted_once)
{
	has(0, SLOT_READY, "10.0.0.1", 80);
	has(1, SLOT_DRAIN, "10.0.0.2", 80);
	has(2, SLOT_READY, "-", 0);
	balancer_adopt(&balancer, &route, 5000);
	cr_assert(route.adopted);
	cr_assert_eq(route.fleet.count, 2);
	cr_expect_str_eq(route.fleet.servers[0].address, "10.0.0.1:80");
	cr_expect_eq(route.fleet.servers[1].state, SERVER_DRAIN);
	cr_expect_eq(route.fleet.servers[1].keep_until_ms, 5000);
	has(3, SLOT_READY, "10.0.0.3", 80);
	balancer_adopt(&balancer, &route, 5000);
	cr_expect_eq(route.fleet.count, 2);
}

Test(balancer, one_that_is_away_is_told_and_adopted_later)
{
	balancer.socket = "/tmp/no such socket";
	balancer_adopt(&balancer, &route, 5000);
	cr_expect_not(route.adopted);
	cr_expect(complains(&balancer.trouble, "No such file"), "%s", balancer.trouble.text);
	balancer_apply(&balancer, &route);
	balancer.socket = fake->path;
	balancer_adopt(&balancer, &route, 5000);
	cr_expect(route.adopted);
	cr_expect_str_eq(balancer.trouble.text, "");
}

Test(balancer, a_refusal_is_told_with_its_words)
{
	struct error error;

	fake->says = "Permission denied";
	cr_expect_eq(haproxy_set(fake->path, "set server b/w1 state ready", &error), -EIO);
	cr_expect(strstr(error.message, "Permission denied"));
	fake->says = "Can't find backend.";
	balancer_apply(&balancer, &route);
	cr_expect(complains(&route.refused, "Can't find backend."), "%s", route.refused.text);
	fake->says = NULL;
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(route.refused.text, "");
}

Test(balancer, one_that_changes_nothing_is_told)
{
	fake->deaf = true;
	wanted("10.0.0.1:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	cr_expect(complains(&route.refused, "does not become"), "%s", route.refused.text);
	cr_expect_eq(fake->commands, 6, "three times");
}

Test(balancer, one_that_hangs_keeps_nobody)
{
	struct error error;
	char *answer;

	fake->hangs = true;
	cr_expect_eq(haproxy_ask(fake->path, "show info", &answer, &error), -ETIMEDOUT);
	cr_expect(strstr(error.message, "show info"));
}

Test(balancer, an_answer_that_never_ends_keeps_nobody)
{
	struct error error;
	char *answer;

	fake->trickles = true;
	cr_expect_eq(haproxy_ask(fake->path, "show info", &answer, &error), -ETIMEDOUT);
}

Test(balancer, one_that_hangs_is_waited_for_once_and_not_for_each_route)
{
	wanted("10.0.0.1:80", SERVER_READY);
	fake->hangs = true;
	balancer_adopt(&balancer, &route, 5000);
	fake->hangs = false;
	balancer_apply(&balancer, &route);
	cr_expect_eq(fake->commands, 0, "it was not asked");
	cr_expect(complains(&balancer.trouble, "show servers state"), "%s", balancer.trouble.text);
	balancer_begin(&balancer);
	balancer_apply(&balancer, &route);
	cr_expect_str_eq(fake_haproxy_slots(fake), "w1 ready 10.0.0.1:80");
}

Test(balancer, no_answer_takes_more_memory_than_the_limit)
{
	struct error error;
	char *answer;

	fake->floods = HAPROXY_ANSWER_MAX + 8192;
	cr_expect_eq(haproxy_ask(fake->path, "show info", &answer, &error), -EMSGSIZE);
	fake->floods = HAPROXY_ANSWER_MAX / 2;
	cr_assert_eq(haproxy_ask(fake->path, "show info", &answer, &error), 0);
	free(answer);
}

Test(balancer, addresses_that_lead_nowhere)
{
	char longest[600], *answer;
	struct error error;

	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	cr_expect_eq(haproxy_ask(longest, "show info", &answer, &error), -ENAMETOOLONG);
	cr_expect_eq(haproxy_ask("no.such.host.invalid:1", "show info", &answer, &error), -EADDRNOTAVAIL);
	cr_expect_eq(haproxy_ask("[::1]:1", "show info", &answer, &error), -ECONNREFUSED);
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	cr_expect_eq(haproxy_ask(fake->path, longest, &answer, &error), -EMSGSIZE, "no command is as long");
}

/* What is in the file, in one line. */
static const char *content(const char *path)
{
	static char text[2048];
	FILE *file = fopen(path, "re");
	size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	text[got] = '\0';
	if (file)
		fclose(file);
	return text;
}

Test(balancer, the_state_file_follows_changes)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/state", fake->folder);
	balancer.state_file = path;
	balancer_write(&balancer);
	cr_expect(strstr(content(path), "b w1 127.0.0.1 5 1\n"), "%s", content(path));
	wanted("10.0.0.1:80", SERVER_READY);
	balancer_apply(&balancer, &route);
	balancer_write(&balancer);
	cr_expect(strstr(content(path), "b w1 10.0.0.1 4 80\n"), "%s", content(path));
	unlink(path);
	balancer_write(&balancer);
	cr_expect_str_eq(content(path), "", "nothing has changed");
}

/* Whoever may write into the folder can make a link there, or a FIFO. */
Test(balancer, the_state_file_is_written_to_no_file_that_others_made)
{
	char path[128], beside[140], victim[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/state", fake->folder);
	snprintf(beside, sizeof(beside), "%s.new", path);
	snprintf(victim, sizeof(victim), "%s/victim", fake->folder);
	close(open(victim, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	cr_assert_eq(symlink(victim, path) | symlink(victim, beside), 0);
	balancer.state_file = path;
	balancer_write(&balancer);
	cr_expect(balancer.is_written);
	cr_expect_str_eq(content(victim), "", "what a link leads to is as it was");
	cr_expect(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
	unlink(beside);
	unlink(victim);
}

Test(balancer, a_state_file_that_cant_be_written_is_told)
{
	balancer.state_file = "/no such folder/state";
	balancer_write(&balancer);
	cr_expect(complains(&balancer.file_trouble, "No such file"), "%s", balancer.file_trouble.text);
	cr_expect_not(balancer.is_written);
}
