#include "own_gpuwmd.h"

#include "../../../proto/socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_FOLDER "/run/gpuwm"
#define TAKE_OVER RUNNER_TAKE_OVER /* the longest name of a socket in the folder */
#define SOCKET_BYTES_MAX ((size_t)SOCKET_PATH_BYTES_MAX)
/* How long a gpuwmd may take to answer. One that starts again needs less; of one that hangs, the keeper can be found without an
 * answer, and whoever waits is told. */
#define OWN_ANSWER_MS 5000

/* ---- places ------------------------------------------------------------------ */

/* Sets the paths that follow from the workers' socket. */
static int place_set(struct own_gpuwmd *own, const char *socket)
{
	const char *slash = strrchr(socket, '/');
	const size_t folder_bytes = slash ? (size_t)(slash - socket) : 0;

	if (socket[0] != '/' || folder_bytes + sizeof(TAKE_OVER) > SOCKET_BYTES_MAX ||
	    strlen(socket) > SOCKET_BYTES_MAX)
		return exit_with(
			EXIT_FAILED,
			"set GPUWM_SOCKET to a shorter path, in a folder of this user's, here and for every client",
			"gpuwmd can't have its sockets beside %s: a socket's path has at most %zu bytes, and "
			"%s there needs %zu",
			socket, SOCKET_BYTES_MAX, TAKE_OVER, folder_bytes + sizeof(TAKE_OVER));
	snprintf(own->socket, sizeof(own->socket), "%s", socket);
	snprintf(own->folder, sizeof(own->folder), "%.*s", (int)folder_bytes, socket);
	snprintf(own->take_over, sizeof(own->take_over), "%s/" TAKE_OVER, own->folder);
	return EXIT_DONE;
}

static int default_set(struct own_gpuwmd *own)
{
	char *folder = socket_users_folder(), *socket = NULL;
	int code;

	if (!folder || asprintf(&socket, "%s/gpuwm.sock", folder) < 0)
		code = exit_with(
			EXIT_FAILED,
			"set HOME, or name the socket with GPUWM_SOCKET, here and for every client",
			"this user has no folder for a socket: neither XDG_RUNTIME_DIR nor HOME names one");
	else
		code = place_set(own, socket);
	free(folder);
	free(socket);
	return code;
}

/* A keeper whose gpuwmd does not answer, because it is starting again, is at one of the user's places, too. */
static int silent_find(struct own_gpuwmd *own)
{
	struct socket_places places;
	int code = EXIT_DONE;

	if (socket_places_find(NULL, false, &places) < 0)
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	for (size_t i = 0; i < places.count && own->keeper == 0; i++) {
		const struct socket_place *place = &places.items[i];

		if (!place->is_users || strlen(place->path) + sizeof(TAKE_OVER) > SOCKET_BYTES_MAX)
			continue;
		code = place_set(own, place->path);
		if (code == EXIT_DONE)
			own->keeper = runner_keeper_at(own->take_over, 0, NULL, 0, NULL);
	}
	socket_places_clear(&places);
	return own->keeper ? code : default_set(own);
}

/* socket: NULL: where a client of this user looks. */
static int connect_soon(const char *socket, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = socket;
	options.name = "gpuwmctl";
	options.flags = GPUWM_CONNECT_ONCE;
	options.timeout_ms = OWN_ANSWER_MS;
	return gpuwm_connect(&options, ret_client);
}

/* ---- looking ------------------------------------------------------------------- */

static int named_find(const struct arguments *arguments, struct own_gpuwmd *own)
{
	char *path = socket_path(arguments->socket, false);
	int code = path ? place_set(own, path) : (int)exit_with(EXIT_FAILED, NULL, "out of memory");

	free(path);
	if (code != EXIT_DONE)
		return code;
	own->keeper = runner_keeper_at(own->take_over, 0, NULL, 0, NULL);
	own->status = own_gpuwmd_ask(own);
	if (!own->status)
		snprintf(own->why, sizeof(own->why), "%s", gpuwm_error()->message);
	return EXIT_DONE;
}

/* Where a client of this user finds gpuwmd. */
static int unnamed_find(struct own_gpuwmd *own)
{
	struct gpuwm_client *client;
	int r = connect_soon(NULL, &client), code = EXIT_DONE;

	if (r == -EPERM)
		return exit_with_connect_error();
	if (r < 0) { /* also if it hangs, or speaks another protocol: its keeper can be found */
		snprintf(own->why, sizeof(own->why), "%s", gpuwm_error()->message);
		return silent_find(own);
	}
	if (strcmp(gpuwm_socket_path(client), SYSTEM_FOLDER "/gpuwm.sock") == 0)
		code = silent_find(own);
	else
		code = place_set(own, gpuwm_socket_path(client));
	if (code == EXIT_DONE && strcmp(own->socket, gpuwm_socket_path(client)) == 0) {
		own->keeper = runner_keeper_at(own->take_over, 0, NULL, 0, NULL);
		code = answer_get(client, "status", NULL, &own->status);
	}
	gpuwm_close(client);
	return code;
}

int own_gpuwmd_find(const struct arguments *arguments, struct own_gpuwmd *ret)
{
	const char *named = getenv("GPUWM_SOCKET");
	struct gpuwm_client *client;
	int code, r;

	*ret = (struct own_gpuwmd){.is_named = arguments->socket || (named && *named)};
	code = ret->is_named ? named_find(arguments, ret) : unnamed_find(ret);
	/* Somebody may listen at the system's socket, though this user's gpuwmd is found first. */
	if (code == EXIT_DONE && strcmp(ret->folder, SYSTEM_FOLDER) != 0) {
		r = connect_soon(SYSTEM_FOLDER "/gpuwm.sock", &client);
		if (r == 0)
			gpuwm_close(client);
		ret->system_answers = r != -ENOENT && r != -ECONNREFUSED;
	}
	if (code != EXIT_DONE)
		own_gpuwmd_clear(ret);
	return code;
}

void own_gpuwmd_clear(struct own_gpuwmd *own)
{
	json_decref(own->status);
	own->status = NULL;
}

json_t *own_gpuwmd_ask(const struct own_gpuwmd *own)
{
	struct gpuwm_client *client;
	json_t *status = NULL;

	if (connect_soon(own->socket, &client) < 0)
		return NULL;
	answer_ask(client, "status", NULL, &status);
	gpuwm_close(client);
	return status;
}

/* ---- folders ------------------------------------------------------------------- */

static pid_t own_gpuwmd_pid(const struct own_gpuwmd *own)
{
	return (pid_t)answer_number(own->status, "pid");
}

struct runner own_gpuwmd_runner(const struct own_gpuwmd *own)
{
	const pid_t pid = own_gpuwmd_pid(own);

	return runner_is_gpuwmd(pid) ? runner_find(pid, own->socket) : (struct runner){0};
}

int own_gpuwmd_foreign_tell(const struct own_gpuwmd *own, const char *remedy)
{
	return exit_with(EXIT_FAILED, remedy, "gpuwmctl start has not started the gpuwmd (pid %d) at %s",
			 (int)own_gpuwmd_pid(own), own->socket);
}

int own_folder_make(const char *path)
{
	char part[OWN_PATH];

	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return exit_with(EXIT_FAILED,
					 "name another socket with GPUWM_SOCKET, here and for every client",
					 "the folder %s can't be made: %s", part, strerror(errno));
		if (!slash)
			break;
		*slash = '/';
	}
	return EXIT_DONE;
}

/* sudo may keep HOME, in which that user could make links for what root writes. */
static int state_folder_make(const char *path)
{
	struct stat st;
	int code = own_folder_make(path);

	if (code != EXIT_DONE || stat(path, &st) < 0 || st.st_uid == geteuid())
		return code;
	return exit_with(EXIT_FAILED, "run it as that user, or with the HOME of this one (sudo -H)",
			 "the folder %s belongs to user %u, and gpuwmctl runs as user %u", path,
			 (unsigned)st.st_uid, (unsigned)geteuid());
}

int own_log_path(const char *folder, char ret_path[OWN_PATH])
{
	char *state = socket_state_folder(), *name = NULL;
	int code = state ? state_folder_make(state)
			 : (int)exit_with(EXIT_FAILED, "set HOME",
					  "there is no folder for the log: HOME is not set");

	if (!state)
		return code;
	if ((size_t)snprintf(ret_path, OWN_PATH, "%s/gpuwmd%s.log", state,
			     socket_folder_is_users(folder) ? "" : folder) >= OWN_PATH)
		code = exit_with(EXIT_FAILED, "set HOME to a shorter path", "the path of the log is too long");
	else
		name = ret_path + strlen(state) + 1;
	/* One file for each folder. */
	for (char *slash = name ? strchr(name, '/') : NULL; slash; slash = strchr(slash, '/'))
		*slash = '+';
	free(state);
	return code;
}
