#include "tests/support/daemon/server.h"

#include <sys/stat.h>

TestSuite(remedy, .init = server_open, .fini = server_close, .timeout = 120);

static void operators(const char *path, const char *group)
{
	strcpy(server->clients.operators.path, path);
	strcpy(server->clients.operators.group, group);
}

Test(remedy, an_operators_method_names_socket_and_group)
{
	int worker = greeted(SESSION_WORKER);

	operators("/run/x/admin.sock", "ops");
	cr_assert_eq(ask(worker, "drain"), -EACCES);
	cr_expect_str_eq(message.error.detail,
			 "operators connect to /run/x/admin.sock, as members of the group ops "
			 "may: usermod -aG ops USER, then log in again");
}

Test(remedy, without_a_group_the_settings_are_named)
{
	int worker = greeted(SESSION_WORKER);

	operators("/run/x/admin.sock", "");
	cr_assert_eq(ask(worker, "drain"), -EACCES);
	cr_expect(strstr(message.error.detail, "/run/x/admin.sock; admin_group and admin_mode in [socket]"),
		  "%s", message.error.detail);
}

Test(remedy, an_observers_method_names_that_group_too)
{
	int worker = greeted(SESSION_WORKER);

	operators("/run/x/admin.sock", "ops");
	server->clients.has_observe_group = true;
	server->net.sessions->client->roles = ROLE_WORKER;
	cr_assert_eq(ask(worker, "clients"), -EACCES);
	cr_expect(strstr(message.error.detail, "usermod -aG ops USER") &&
			  strstr(message.error.detail, "usermod -aG gpuwm-observe USER"),
		  "%s", message.error.detail);
	cr_assert_eq(ask(worker, "jobs"), -EACCES);
	cr_expect(strstr(message.error.detail, "usermod -aG gpuwm-observe USER"), "%s", message.error.detail);
}

Test(remedy, a_publisher_joins_the_group_that_there_is)
{
	char text[REMEDY_BYTES];

	server->clients.has_publish_group = true;
	cr_expect(strstr(remedy_publisher(&server->clients, text),
			 "join the group gpuwm-publish: usermod -aG gpuwm-publish"),
		  "%s", text);
	server->clients.has_publish_group = false;
	cr_expect(strstr(remedy_publisher(&server->clients, text), "publish_group in [access] names one"), "%s",
		  text);
}

Test(remedy, the_sockets_file_tells_its_group)
{
	struct operators_socket found;
	char path[] = "/tmp/gpuwm-remedy-XXXXXX";
	int fd = mkstemp(path);

	cr_assert(fd >= 0 && fchmod(fd, 0660) == 0);
	if (geteuid() == 0) {
		cr_assert_eq(fchown(fd, 0, 0), 0);
		operators_socket_look(&found, path);
		cr_expect_str_eq(found.group, "", "nobody is told to join the group root");
		cr_assert_eq(fchown(fd, 0, 1), 0);
	}
	operators_socket_look(&found, path);
	cr_expect_str_eq(found.path, path);
	cr_expect_neq(found.group[0], '\0');
	cr_assert_eq(fchmod(fd, 0600), 0);
	operators_socket_look(&found, path);
	cr_expect_str_eq(found.group, "");
	close(fd);
	unlink(path);
}
