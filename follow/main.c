#include "follow.h"
#include "../service/abort_line.h"
#include "../service/streams.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

/* The loop reads them, so that none comes in between. */
static int take_signals(void)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGCHLD);
	signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would hide how the hook ends */
	if (sigprocmask(SIG_BLOCK, &ours, NULL) < 0)
		return -errno;
	return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct options options;
	int r, signals;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	abort_line_begin("gpuwm-follow");
	r = options_parse(&options, argc, argv);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_RAN;
	signals = take_signals();
	r = signals < 0 ? -errno : follow_run(&options, signals);
	if (r < 0)
		log_error("gpuwm-follow can't wait for events: %s", strerror(-r));
	if (signals >= 0)
		close(signals);
	free(options.routes);
	return r < 0 ? EXIT_COULD_NOT_START : EXIT_RAN;
}
