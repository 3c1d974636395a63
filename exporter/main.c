#include "http.h"
#include "limits.h"
#include "../service/log.h"
#include "options.h"
#include "../service/manager.h"
#include "../service/process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

static int exporter_serve(const struct options *options, const struct admission *admission,
			  struct source *source, struct tally *tally, const sigset_t *ours)
{
	unsigned port;
	int fd = address_listen(&options->address, options->listen, &port);
	const struct timespec pause = {.tv_nsec = HTTP_LOOK_MS * 1000000L};
	char status[256];
	struct http *http;

	if (fd < 0 || http_new(fd, options->address.is_loopback, admission, source, tally, &http) < 0)
		return EXIT_COULD_NOT_START;
	/* The port that the kernel chose, if it was to choose one. */
	log_info("listening at %s (port %u)", options->listen, port);
	snprintf(status, sizeof(status), "READY=1\nSTATUS=Serving at %s", options->listen);
	manager_tell(status);
	/* Looks after the connections until a signal ends the exporter. */
	while (sigtimedwait(ours, NULL, &pause) < 0)
		http_look(http);
	manager_tell("STOPPING=1");
	http_free(http);
	return EXIT_RAN;
}

int main(int argc, char **argv)
{
	struct admission admission = {0};
	struct tally tally = {0};
	struct options options;
	struct source *source;
	sigset_t ours;
	int private = privacy_begin(), r;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	log_begin("gpuwm-exporter");
	abort_line_begin();
	if (private < 0)
		log_warning("other processes of this user may trace gpuwm-exporter: %s", strerror(-private));
	r = options_parse(&options, argc, argv);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_RAN;
	/* SIGTERM and SIGINT wait until the main thread takes them. Threads inherit that. */
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigprocmask(SIG_BLOCK, &ours, NULL);
	signal(SIGPIPE, SIG_IGN);
	admission.for_all = options.no_token;
	if (options.token_file && token_read(options.token_file, &admission.token) < 0)
		return EXIT_COULD_NOT_START;
	if (source_new(options.socket, &tally, &source) < 0)
		return EXIT_COULD_NOT_START;
	r = exporter_serve(&options, &admission, source, &tally, &ours);
	source_free(source);
	return r;
}
