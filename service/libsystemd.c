/* Stands for libsystemd in a build that does not link it: the functions of sd-daemon.h that gpuwm calls, taken from
 * libsystemd.so.0 at run time. A wheel runs where that library may be missing.
 *
 * The library is opened only if the service manager's variables ask for it. Where it is missing then, the program says so once,
 * and the calls fail with -ELIBACC. */
#include "log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#define LIBRARY "libsystemd.so.0"

static struct {
	void *handle; /* never closed */
	__typeof__(sd_pid_notify_with_fds) *pid_notify_with_fds;
	__typeof__(sd_watchdog_enabled) *watchdog_enabled;
	__typeof__(sd_listen_fds) *listen_fds;
	__typeof__(sd_listen_fds_with_names) *listen_fds_with_names;
	__typeof__(sd_is_socket) *is_socket;
} library;
static int opened; /* 0, or -ELIBACC */

static void library_open(void)
{
	library.handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library.handle) {
		library.pid_notify_with_fds = dlsym(library.handle, "sd_pid_notify_with_fds");
		library.watchdog_enabled = dlsym(library.handle, "sd_watchdog_enabled");
		library.listen_fds = dlsym(library.handle, "sd_listen_fds");
		library.listen_fds_with_names = dlsym(library.handle, "sd_listen_fds_with_names");
		library.is_socket = dlsym(library.handle, "sd_is_socket");
	}
	if (library.pid_notify_with_fds && library.watchdog_enabled && library.listen_fds &&
	    library.listen_fds_with_names && library.is_socket)
		return;
	opened = -ELIBACC;
	log_error(
		"libsystemd can't be used, so the service manager that started this program keeps no descriptors for it and "
		"passes none to it: %s: install " LIBRARY " (the packages libsystemd0, systemd-libs)",
		library.handle ? LIBRARY " is older than systemd 227" : dlerror());
}

/* Opens the library if the variable is set. Returns 1; 0 if it is not set; -ELIBACC if there is no library. */
static int library_needed(const char *variable)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!getenv(variable))
		return 0;
	pthread_once(&once, library_open);
	return opened < 0 ? opened : 1;
}

int sd_pid_notify_with_fds(pid_t pid, int unset_environment, const char *state, const int *fds, unsigned n_fds)
{
	int r = library_needed("NOTIFY_SOCKET");

	return r > 0 ? library.pid_notify_with_fds(pid, unset_environment, state, fds, n_fds) : r;
}

int sd_watchdog_enabled(int unset_environment, uint64_t *usec)
{
	int r = library_needed("WATCHDOG_USEC");

	return r > 0 ? library.watchdog_enabled(unset_environment, usec) : r;
}

int sd_listen_fds(int unset_environment)
{
	int r = library_needed("LISTEN_FDS");

	return r > 0 ? library.listen_fds(unset_environment) : r;
}

int sd_listen_fds_with_names(int unset_environment, char ***names)
{
	int r = library_needed("LISTEN_FDS");

	return r > 0 ? library.listen_fds_with_names(unset_environment, names) : r;
}

/* Asked of descriptors that sd_listen_fds has found, so the library is open; the variables may be gone. */
int sd_is_socket(int fd, int family, int type, int listening)
{
	return library.is_socket ? library.is_socket(fd, family, type, listening) : -ELIBACC;
}
