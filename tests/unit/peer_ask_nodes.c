/* Asking a node that tells what no node has. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "peer/ask.h"
#include "peer/serve.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct accepting node;
static struct peer_keys *keys;

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	certificates_begin();
	certificates_write("secret", "0123456789abcdef0123456789abcdef", 0600);
	keys = keys_of(settings_of_secret("secret"));
	accepting_begin(&node, keys, 5000);
}

static void end(void)
{
	accepting_end(&node);
	peer_keys_release(keys);
	certificates_end();
}

TestSuite(ask, .init = begin, .fini = end, .timeout = 60);

/* A full page, whatever page is asked for. */
static int list_for_ever(void *user, uint64_t from, struct message_writer *w, struct error *error)
{
	static const struct version_id id = {{1}};
	const struct peer_version version = {
		.version = &id, .model = "m", .tag = "v1", .world = 1, .bytes = 1, .tier = "host"};

	(void)user;
	(void)from;
	(void)error;
	record_put(w, form_peer_list.result, &(struct peer_list_result){UINT32_MAX});
	message_begin_array(w, "versions");
	for (unsigned i = 0; i < PEER_LIST_PAGE; i++)
		record_put_map(w, NULL, &peer_version_record, &version);
	message_end(w);
	return 0;
}

static void *serve(void *unused)
{
	static const struct serve_source source = {.list = list_for_ever};
	const struct server server = {.source = &source, .program = "test"};
	struct serve_report report;
	struct error error;

	accepting_wait(&node);
	cr_assert_eq(node.result, 0, "%s", node.error.message);
	serve_link(&server, node.link, &report, &error);
	return unused;
}

Test(ask, a_list_has_an_end)
{
	static char told[8 << 20];
	char settings[256];
	struct error error;
	pthread_t thread;
	int output = memfd_create("told", MFD_CLOEXEC);

	snprintf(settings, sizeof(settings), "[peers]\nsecret = %s\npeer = 127.0.0.1:%u\n",
		 certificates_path("secret"), node.port);
	certificates_write("asking.conf", settings, 0600);
	cr_assert_eq(dup2(output, STDOUT_FILENO), STDOUT_FILENO);
	pthread_create(&thread, NULL, serve, NULL);
	cr_assert_eq(ask_print(certificates_path("asking.conf"), 30000, &error), 0, "%s", error.message);
	fflush(stdout);
	pthread_join(thread, NULL);
	cr_assert_gt(pread(output, told, sizeof(told) - 1, 0), 0);
	cr_expect(strstr(told, "versions and more"), "%.200s", told);
	close(output);
}
