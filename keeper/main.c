#include "keeper.h"
#include "../service/log.h"
#include "../service/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

/* The keeper's own descriptors: standard streams, signals, notifications, and some to spare. */
#define FILES_BASE 32

/* Returns how many descriptors the keeper needs. The numbers of stored ones lie above the places
 * that the child has for them, so these are twice as many. One notification more comes on top. */
static rlim_t files_needed(size_t store_max)
{
	return FILES_BASE + STORE_FD_FIRST + 2 * store_max + INBOX_FDS_MAX;
}

/* Raises the limit of open files, which the program inherits. */
static int raise_files(size_t store_max)
{
	rlim_t needed = files_needed(store_max);
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	if (files.rlim_cur >= needed)
		return 0;
	files.rlim_cur = needed;
	if (files.rlim_max < needed) {
		log_error(
			"a store of %zu descriptors needs %llu open files, the hard limit is %llu: raise it (ulimit "
			"-Hn, docker run --ulimit nofile=), or lower --store-max",
			store_max, (unsigned long long)needed, (unsigned long long)files.rlim_max);
		return -EMFILE;
	}
	if (setrlimit(RLIMIT_NOFILE, &files) == 0)
		return 0;
	log_error("RLIMIT_NOFILE can't be raised to %llu: %s", (unsigned long long)needed, strerror(errno));
	return -EMFILE;
}

/* Makes the kernel's table of the keeper's descriptors as large as it ever gets, so that keeping
 * one needs no memory later. */
static int reserve_files(size_t store_max)
{
	int last = (int)files_needed(store_max) - 1, fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, last);

	if (fd < 0) {
		log_error("a table of %d descriptors can't be made: %s", last + 1, strerror(errno));
		return -errno;
	}
	close(fd);
	return 0;
}

/* Blocks all signals but those of a fault and Ctrl-Z. They wait until the keeper reads them, or for
 * ever, so that none ends the keeper by accident: its end frees the store. Blocked signals reach
 * PID 1 too; without that the kernel drops those for which PID 1 has no handler. The actions are
 * the default ones: an inherited SIG_IGN of SIGCHLD would hide every death. */
static int take_signals(void)
{
	static const int spared[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGTSTP};
	static const int wanted[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
	sigset_t blocked, ours;

	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(spared) / sizeof(spared[0]); i++)
		sigdelset(&blocked, spared[i]);
	sigemptyset(&ours);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		sigaddset(&ours, wanted[i]);
		signal(wanted[i], SIG_DFL);
	}
	if (sigprocmask(SIG_SETMASK, &blocked, NULL) < 0)
		return -errno;
	return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct options options;
	int private = privacy_begin(), r, signals, status;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	log_begin("gpuwm-keeper");
	abort_line_begin();
	if (private < 0) {
		log_error("gpuwm-keeper can't keep other processes from tracing it: %s", strerror(-private));
		return EXIT_COULD_NOT_START;
	}
	r = options_parse(&options, argc, argv);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_RAN;
	log_line_date();
	/* The program does not inherit what whoever started the keeper left open. glibc has this call since 2.34, and the wheel runs with
	 * older ones. */
	if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		log_warning("descriptors that gpuwm-keeper inherited are passed on: %s", strerror(errno));
	if (raise_files(options.store_max) < 0 || reserve_files(options.store_max) < 0)
		return EXIT_COULD_NOT_START;
	signals = take_signals();
	if (signals < 0) {
		log_error("signals can't be read: %s", strerror(errno));
		return EXIT_COULD_NOT_START;
	}
	/* In a container the keeper may not be PID 1, and the PID 1 there may reap nobody. So
	 * orphans come to the keeper in any case. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	status = keeper_run(&options, environ, signals);
	close(signals);
	return status;
}
