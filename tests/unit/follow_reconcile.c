/* What HAProxy says of its servers, and what it is told. */
#include "follow/slots.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEAD                                                                                                   \
	"1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight "    \
	"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state "       \
	"srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl "              \
	"srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"
/* A slot as HAProxy 2.6 tells it. */
#define SLOT(name, ip, admin, port)                                                                            \
	"2 b 1 " name " " ip " 2 " admin " 1 1 0 8 2 0 6 0 0 0 worker.invalid " port " - 0 0 - - 0\n"
#define FREE(name) SLOT(name, "127.0.0.1", "5", "1")

static struct fleet fleet;
static struct slots slots;
static struct commands commands;

static void end(void)
{
	fleet_clear(&fleet);
	slots_clear(&slots);
	commands_clear(&commands);
}

TestSuite(reconcile, .fini = end);

static void haproxy_has(const char *text)
{
	char copy[4000];

	snprintf(copy, sizeof(copy), "%s", text);
	slots_clear(&slots);
	cr_assert_eq(slots_read(copy, &slots), 0);
}

static void wanted(const char *address, enum server_state state)
{
	cr_assert_eq(fleet_adopt(&fleet, address, state, 0), 0);
}

/* What HAProxy is told, without "set server b/". */
static const char *told(void)
{
	static char text[2000];
	static const char before[] = "set server b/";

	text[0] = '\0';
	commands_clear(&commands);
	cr_assert_eq(reconcile("b", &fleet, &slots, &commands), 0);
	for (size_t i = 0; i < commands.count; i++) {
		size_t used = strlen(text);

		cr_assert_eq(strncmp(commands.items[i], before, strlen(before)), 0);
		snprintf(text + used, sizeof(text) - used, "%s%s", used ? ", " : "",
			 commands.items[i] + strlen(before));
	}
	return text;
}

Test(reconcile, slots_are_read_by_the_names_of_their_columns)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "4", "8000") SLOT("w2", "fd00::5", "12", "443")
			    SLOT("w3", "10.0.0.3", "1", "80") SLOT("w4", "-", "36", "1"));
	cr_assert_eq(slots.count, 4);
	cr_expect_str_eq(slots.items[0].name, "w1");
	cr_expect_eq(slots.items[0].state, SLOT_READY, "disabled in the configuration counts no more");
	cr_expect_eq(slots.items[1].state, SLOT_DRAIN);
	cr_expect_eq(slots.items[2].state, SLOT_MAINT);
	cr_expect_eq(slots.items[3].state, SLOT_MAINT, "its name can't be resolved");
}

Test(reconcile, what_is_no_list_of_slots_is_refused)
{
	char other[] = "Can't find backend.", columns[] = "1\n# be_id srv_name\n2 w1\n", empty[] = "1\n",
	     cut[] = HEAD "2 b 1 w1 10.0.0.1 2\n", no_head[] = "1\n2 b 1 w1\n";
	char longest[1000];

	cr_expect_eq(slots_read(other, &slots), -EBADMSG);
	cr_expect_eq(slots_read(columns, &slots), -EBADMSG);
	cr_expect_eq(slots_read(empty, &slots), -EBADMSG);
	cr_expect_eq(slots_read(cut, &slots), -EBADMSG);
	cr_expect_eq(slots_read(no_head, &slots), -EBADMSG);
	snprintf(longest, sizeof(longest), "%s2 b 1 %064d 10.0.0.1 2 0 1 1 0 1 1 1 1 1 1 1 - 80\n", HEAD, 0);
	cr_expect_eq(slots_read(longest, &slots), -EBADMSG);
	cr_expect_eq(slots.count, 0);
}

Test(reconcile, a_slots_address_has_gpuwms_form)
{
	char address[ADDRESS_BYTES_MAX + 1];

	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "0", "8000") SLOT("w2", "fd00::5", "0", "443"));
	slot_address(&slots.items[0], address);
	cr_expect_str_eq(address, "10.0.0.1:8000");
	slot_address(&slots.items[1], address);
	cr_expect_str_eq(address, "[fd00::5]:443");
}

Test(reconcile, a_server_gets_a_free_slot)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.9", "0", "80") FREE("w2"));
	wanted("10.0.0.9:80", SERVER_READY);
	wanted("[fd00::5]:443", SERVER_READY);
	cr_expect_str_eq(told(), "w2 addr fd00::5 port 443, w2 state ready");
}

Test(reconcile, what_is_right_is_left_alone)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "4", "80") SLOT("w2", "::1", "8", "80") FREE("w3"));
	wanted("10.0.0.1:80", SERVER_READY);
	wanted("[0:0::1]:80", SERVER_DRAIN);
	cr_expect_str_eq(told(), "");
}

Test(reconcile, who_serves_comes_first_and_who_leaves_comes_last)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "0", "80") SLOT("w2", "10.0.0.2", "0", "80") FREE("w3"));
	wanted("10.0.0.2:80", SERVER_DRAIN);
	wanted("10.0.0.3:80", SERVER_READY);
	cr_expect_str_eq(told(), "w3 addr 10.0.0.3 port 80, w3 state ready, w2 state drain, w1 state maint");
}

Test(reconcile, a_server_comes_back_into_its_own_slot)
{
	haproxy_has(HEAD FREE("w1") SLOT("w2", "10.0.0.2", "5", "80") SLOT("w3", "10.0.0.3", "8", "80"));
	wanted("10.0.0.2:80", SERVER_READY);
	wanted("10.0.0.3:80", SERVER_READY);
	cr_expect_str_eq(told(), "w2 state ready, w3 state ready");
}

Test(reconcile, a_second_slot_of_one_address_leaves)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "0", "80") SLOT("w2", "10.0.0.1", "0", "80"));
	wanted("10.0.0.1:80", SERVER_READY);
	cr_expect_str_eq(told(), "w2 state maint");
}

Test(reconcile, who_has_no_place_is_counted)
{
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "0", "80"));
	wanted("10.0.0.2:80", SERVER_READY);
	wanted("worker-5:80", SERVER_READY);
	wanted("unix:/run/w.sock", SERVER_READY);
	cr_expect_str_eq(told(), "w1 state maint", "it is free in the next round");
	cr_expect_eq(commands.without_slot, 1);
	cr_expect_eq(commands.without_ip, 2);
	cr_expect_str_eq(commands.odd, "unix:/run/w.sock");
	haproxy_has(HEAD SLOT("w1", "10.0.0.1", "1", "80"));
	cr_expect_str_eq(told(), "w1 addr 10.0.0.2 port 80, w1 state ready");
	cr_expect_eq(commands.without_slot, 0);
}

Test(reconcile, the_longest_names_fit_a_command)
{
	char backend[129], text[sizeof(HEAD) + 300];

	memset(backend, 'b', 128);
	backend[128] = '\0';
	snprintf(text, sizeof(text), "%s2 b 1 %063d 127.0.0.1 2 5 1 1 0 1 1 1 1 1 1 1 - 1\n", HEAD, 0);
	haproxy_has(text);
	wanted("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535", SERVER_READY);
	cr_assert_eq(reconcile(backend, &fleet, &slots, &commands), 0);
	cr_assert_eq(commands.count, 2);
	cr_expect(strstr(commands.items[0], "addr fd00:1111:2222:3333:4444:5555:6666:7777 port 65535"));
}
