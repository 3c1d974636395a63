#include "starter.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct gpuwmd starter_place;
char starter_home[80], starter_runtime[80];

void starter_make(bool has_runtime)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "gpuwmctl starts the same programs on every memory kind");
	folder_make(&starter_place);
	snprintf(starter_home, sizeof starter_home, "%s/home", starter_place.dir);
	snprintf(starter_runtime, sizeof starter_runtime, "%s/run", starter_place.dir);
	cr_assert(mkdir(starter_home, 0700) == 0 && mkdir(starter_runtime, 0700) == 0);
	setenv("HOME", starter_home, 1);
	setenv("XDG_RUNTIME_DIR", starter_runtime, 1);
	if (!has_runtime)
		unsetenv("XDG_RUNTIME_DIR");
	unsetenv("DBUS_SESSION_BUS_ADDRESS");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("HF_HOME");
	unsetenv("HF_HUB_CACHE");
	unsetenv("HUGGINGFACE_HUB_CACHE");
	unsetenv("XDG_CACHE_HOME");
	unsetenv("GPUWM_SOCKET");
}

/* A test that was skipped has no user: stop would end the gpuwmd of whoever runs the tests. */
void starter_end(void)
{
	if (*starter_home) {
		CTL("stop");
		CTL("--socket", starter_place.socket, "stop");
	}
	harness_cleanup();
}

struct gpuwm_client *starter_client(void)
{
	struct gpuwm_client *client = NULL;

	OK(gpuwm_connect(NULL, &client));
	return client;
}

pid_t starter_pid(void)
{
	struct gpuwm_client *client = starter_client();
	json_t *status = query(client, "status", NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	gpuwm_close(client);
	return pid;
}

bool nobody_listens(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	bool is_systems;
	int r;

	options.flags = GPUWM_CONNECT_ONCE; /* it does not wait for one that goes away */
	r = gpuwm_connect(&options, &client);
	if (r < 0)
		return r == -ENOENT || r == -ECONNREFUSED || r == -EACCES;
	is_systems = strcmp(gpuwm_socket_path(client), "/run/gpuwm/gpuwm.sock") == 0;
	gpuwm_close(client);
	return is_systems;
}

void starter_says(const char *format, const char *folder)
{
	char words[256];

	snprintf(words, sizeof words, format, folder);
	SAYS(words);
}

void starter_shell(const char *format, const char *first, const char *second)
{
	char command[1024];

	snprintf(command, sizeof command, format, first, second);
	cr_assert_eq(system(command), 0, "%s", command);
}
