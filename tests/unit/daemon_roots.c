/* What loaders say of the roots, as gpuwmd keeps and tells it. */
#include "daemon/config/roots.h"
#include "tests/support/daemon/caught.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(roots, .init = open_service, .fini = close_service, .timeout = 120);

static struct error gone = {.code = -ENOENT, .message = "the root /b can't be used: gone", .detail = "make it"};
static const struct root_told one_is_gone[] = {{"/a", NULL}, {"/b", &gone}};
static const struct root_told all_are_there[] = {{"/a", NULL}, {"/b", NULL}};

static void take(const struct root_told told[2])
{
	cr_assert_eq(roots_take(server->roots, 7, told, 2), 0);
}

/* What the log says when a loader has found this. */
static const char *logged(const struct root_told told[2])
{
	log_catch();
	take(told);
	return log_caught();
}

Test(roots, are_logged_when_what_a_loader_finds_changes)
{
	static const char fails[] =
		"warning: the root /b can't be used: gone. Loads from below it fail: make it\n";
	const char *text;

	cr_expect_str_eq(logged(all_are_there), "");
	text = logged(one_is_gone);
	cr_expect(strstr(text, fails) && !strstr(text, "/a"), "%s", text);
	cr_expect_str_eq(logged(one_is_gone), "");
	text = logged(all_are_there);
	cr_expect(strstr(text, "the root /b can be used again\n"), "%s", text);
	cr_expect_str_eq(logged(all_are_there), "");
}

Test(roots, that_have_no_memory_leave_what_is_known)
{
	struct root_told items[ROOTS_MAX];
	struct roots_told told;
	int r;

	take(all_are_there);
	for (unsigned n = 1;
	     fail_alloc_arm(n), r = roots_take(server->roots, 8, one_is_gone, 2), fail_alloc_disarm(); n++) {
		cr_assert_eq(r, -ENOMEM);
		cr_assert(roots_tell(server->roots, items, &told));
		cr_assert_eq(told.pid, 7);
		cr_assert_null(items[1].error);
	}
	cr_expect_eq(r, 0);
	roots_forget(server->roots);
	cr_expect_not(roots_tell(server->roots, items, &told));
}

/* A message that is too large would end the loader's connection, or fail status. */
Test(roots, that_have_no_room_in_a_message)
{
	static char path[PATH_BYTES_MAX + 1];
	struct root_told told[ROOTS_MAX], items[ROOTS_MAX];
	struct roots_told answer;

	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	for (size_t i = 0; i < ROOTS_MAX; i++) {
		snprintf(path + sizeof(path) - 3, 3, "%02zu", i);
		cr_assert_eq(config_set(&config, "loader", "root", path, NULL), 0);
		told[i] = (struct root_told){config.roots[i], &gone};
	}
	cr_expect_eq(roots_to_judge(&config), 0);
	cr_assert_eq(roots_take(server->roots, 7, told, ROOTS_MAX), 0);
	cr_assert(roots_tell(server->roots, items, &answer));
	cr_expect_eq(answer.roots.count, 5);
	config_clear(&config);
}

Test(roots, that_a_loader_judged_are_in_status)
{
	const msgpack_object *list, *judged;
	struct message_writer w;
	struct fields f, one;
	char text[64];
	uint32_t count;
	int loader, client;

	cr_assert_eq(config_set(&config, "loader", "root", "/b", NULL), 0);
	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	loader = standby_with(-1);
	fields_of(&f, message.body);
	fields_array(&f, "roots", &count);
	cr_expect_eq(count, 1, "hello does not tell the roots");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_loader_roots.name);
	record_put(&w, form_loader_roots.params, &(struct loader_roots_params){{&one_is_gone[1], 1}});
	send_request(loader, &w);
	client = greeted(SESSION_WORKER);
	do {
		cr_assert_eq(ask(client, "status"), 0);
		fields_of(&f, message.body);
	} while (!fields_have(&f, "roots_judged"));
	cr_expect_eq(fields_u64(&f, "standby_pid"), 12345);
	judged = fields_map(&f, "roots_judged");
	fields_of(&one, judged);
	cr_expect_eq(fields_u64(&one, "pid"), 12345);
	list = fields_array(&one, "roots", &count);
	cr_assert_eq(count, 1);
	fields_of(&one, &list[0]);
	fields_text(&one, "root", text, sizeof(text));
	cr_expect_str_eq(text, "/b");
	close(client);
	close(loader);
	config_clear(&config);
	leave();
}
