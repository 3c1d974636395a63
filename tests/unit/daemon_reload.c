#include "tests/support/daemon/server.h"

#include <fcntl.h>

TestSuite(reload_method, .init = server_open, .fini = server_close, .timeout = 120);

static char path[64];

static void configure(const char *text)
{
	static char *argv[] = {"gpuwmd", "--config", path, NULL};
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/gpuwm-reload-%d.conf", (int)getpid());
	file = fopen(path, "we");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
	server->config->argc = 3;
	server->config->argv = argv;
}

Test(reload_method, the_new_file_is_in_force_when_the_answer_comes)
{
	int admin = greeted(SESSION_ADMIN);

	configure("[limits]\nloaders = 3\n");
	cr_assert_eq(ask(admin, "reload"), 0);
	cr_expect_eq(server->config->loaders, 3);
	unlink(path);
}

Test(reload_method, an_error_names_file_line_and_remedy_and_the_old_file_stays)
{
	int admin = greeted(SESSION_ADMIN);
	char where[128];

	configure("[limits]\nloaders = 3\n");
	cr_assert_eq(ask(admin, "reload"), 0);
	configure("[limits]\nloaders = 4\nloadres = 5\n");
	log_init(LOG_LEVEL_ERROR);
	cr_assert_eq(ask(admin, "reload"), -EINVAL);
	snprintf(where, sizeof(where), "%s:3: there is no key \"loadres\" in [limits]", path);
	cr_expect(strstr(message.error.message, where), "%s", message.error.message);
	cr_expect(strstr(message.error.message, "the old configuration stays"), "%s", message.error.message);
	cr_expect(strstr(message.error.detail, "loaders"), "%s", message.error.detail);
	cr_expect_eq(server->config->loaders, 3);
	unlink(path);
}

Test(reload_method, a_file_that_is_gone_is_told)
{
	int admin = greeted(SESSION_ADMIN);

	configure("");
	unlink(path);
	cr_assert_eq(ask(admin, "reload"), -ENOENT);
	cr_expect(strstr(message.error.message, path), "%s", message.error.message);
	cr_expect(strstr(message.error.detail, "--config"), "%s", message.error.detail);
}
