/* sockets: there, reachable, of gpuwmd; and what that gpuwmd says. */
#include "groups.h"

#include "../answer.h"
#include "../runner.h"
#include "gpuwmd.h"
#include "machine.h"
#include "../../../proto/socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OR_NAME_IT "; or name the socket: --socket, $GPUWM_SOCKET"

/* What a user does about a socket where nobody answers. */
static const char *connect_remedy(int error, const struct unit *unit)
{
	char kind[64];

	switch (-error) {
	case ENOENT:
		if (machine_container(kind, sizeof(kind)))
			return "mount the folder of the host's gpuwm.sock (/run/gpuwm) into the container; or "
			       "gpuwmctl start, for a gpuwmd in the container";
		return strcmp(unit->load, "loaded") == 0
			       ? "systemctl start gpuwmd.socket; or gpuwmctl start, for a gpuwmd of this "
				 "user" OR_NAME_IT
			       : "gpuwmctl start starts a gpuwmd of this user" OR_NAME_IT;
	case ECONNREFUSED:
		return "start gpuwmd (gpuwmctl start, for one of this user); a container must mount the folder, "
		       "since a socket that was mounted by itself stays the old one";
	default:
		return gpuwm_error()->detail;
	}
}

/* admin.sock may be missing or closed for this user, who is then no operator. */
static enum verdict connect_verdict(bool admin, int error)
{
	const bool is_no_operator = error == -ENOENT || error == -EACCES || error == -EPERM;

	return admin && is_no_operator ? VERDICT_NOT_APPLICABLE : VERDICT_FAILED;
}

/* What gpuwmd itself would say of the path at its next start, for the user that the socket belongs to. Returns 0 if there is nothing
 * to say; else fails as socket_place_check. */
static int place_check(const char *path, struct error *error)
{
	struct stat st;
	const int r = socket_place_check(path, lstat(path, &st) == 0 ? st.st_uid : geteuid(), error);

	/* That this user can't make a socket there says nothing of the socket that is meant. */
	return r == -EACCES || r == -EROFS ? 0 : r;
}

bool check_sockets_says(const char *socket, const char *text)
{
	char path[PLACE_BYTES];
	struct error error;
	struct unit unit;

	if (unit_keeps_waiting(socket, &unit))
		return false;
	for (int admin = 0; admin < 2; admin++) {
		gpuwmd_socket(socket, admin, path, sizeof(path));
		if (place_check(path, &error) < 0 && strstr(text, error.message))
			return true;
	}
	return false;
}

/* said: what was found at the place of the socket before, so that a folder with both sockets is told once. */
static void socket_judge(struct findings *findings, const char *given, bool admin, struct error *said)
{
	char path[PLACE_BYTES], mode[100] = "", why[300];
	struct gpuwm_client *client;
	struct error error;
	struct unit unit;
	struct stat info;
	int r;

	gpuwmd_socket(given, admin, path, sizeof(path));
	if (stat(path, &info) == 0)
		snprintf(mode, sizeof(mode), " (mode %04o, uid %u, gid %u)", (unsigned)info.st_mode & 07777,
			 info.st_uid, info.st_gid);
	if (unit_keeps_waiting(given, &unit)) {
		finding(findings, VERDICT_FAILED, "socket", path, "see the unit, in the checks of service",
			"systemd holds it, and " UNIT " does not run%s", mode);
		return;
	}
	r = place_check(path, &error);
	if (r < 0 && strcmp(error.message, said->message) != 0) {
		finding(findings, r == -EPERM ? VERDICT_WARNING : VERDICT_FAILED, "folder", path, error.detail,
			"%s", error.message);
		*said = error;
	}
	if (r < 0 && r != -EPERM && r != -ENOENT) /* to connect fails too then, which has a remedy of its own */
		return;
	r = gpuwmd_connect(given, admin, &client);
	if (r == 0) {
		gpuwm_close(client);
		finding(findings, VERDICT_OK, "socket", path, NULL, "gpuwmd answers%s", mode);
		return;
	}
	snprintf(why, sizeof(why), "%s", gpuwm_error()->message);
	finding(findings, connect_verdict(admin, r), "socket", path,
		connect_verdict(admin, r) == VERDICT_FAILED ? connect_remedy(r, &unit)
							    : "only operators need this socket",
		"%s%s", why, mode);
}

/* ---- what it says ----------------------------------------------------------- */

static void versions_judge(struct findings *findings, const char *given, const json_t *status)
{
	const char *server = answer_text(status, "server"), *library = gpuwm_library_version();
	char path[PLACE_BYTES], text[RELEASE_TEXT], remedy[RELEASE_TEXT];

	gpuwmd_socket(given, false, path, sizeof(path));
	release_remedy(status, path, remedy);
	if (json_is_true(json_object_get(status, "replaced")) && release_differs(status, text))
		finding(findings, VERDICT_WARNING, "versions", NULL, remedy, "%s", text);
	else if (strcmp(server, GPUWM_VERSION) == 0 && strcmp(library, GPUWM_VERSION) == 0)
		finding(findings, VERDICT_OK, "versions", NULL, NULL,
			"gpuwmd, gpuwmctl and libgpuwm-client are %s", server);
	else
		finding(findings, VERDICT_WARNING, "versions", NULL,
			strcmp(library, GPUWM_VERSION) == 0
				? remedy
				: "install gpuwmctl and libgpuwm-client of one release",
			"gpuwmd is %s, gpuwmctl is %s, libgpuwm-client is %s", server, GPUWM_VERSION, library);
}

static void kept_judge(struct findings *findings, const json_t *status)
{
	const json_t *locked = json_object_get(status, "locked");

	if (locked)
		finding(findings, VERDICT_FAILED, "restarts", NULL, answer_text(locked, "detail"), "%s",
			answer_text(locked, "message"));
	else if (json_is_true(json_object_get(status, "kept")))
		finding(findings, VERDICT_OK, "restarts", NULL, NULL,
			"versions outlive gpuwmd; it is start %llu with these weights, and counts on a store of "
			"%llu descriptors",
			(unsigned long long)answer_number(status, "epoch"),
			(unsigned long long)answer_number(json_object_get(status, "limits"), "store_fds"));
	else
		finding(findings, VERDICT_WARNING, "restarts", NULL,
			"start gpuwmd by its systemd unit, or by gpuwm-keeper",
			"versions end with this gpuwmd: nobody keeps its descriptors");
}

static void state_judge(struct findings *findings, const json_t *status)
{
	const json_t *device;
	size_t i;

	if (json_is_true(json_object_get(status, "draining")))
		finding(findings, VERDICT_WARNING, "draining", NULL, "start gpuwmd again when it is empty",
			"gpuwmd takes nothing new, since somebody called drain or it stops");
	if (json_is_true(json_object_get(status, "standby")))
		finding(findings, VERDICT_OK, "loader", NULL, NULL, "a loader stands by");
	else
		finding(findings, VERDICT_WARNING, "loader", NULL,
			"see gpuwmd's log; under systemd: systemctl status gpuwm-loader.socket",
			"no loader stands by: loads and publishes wait for one, or fail");
	json_array_foreach(json_object_get(status, "devices"), i, device) {
		const json_t *lost = json_object_get(device, "lost");

		if (lost)
			finding(findings, VERDICT_FAILED, "lost", answer_text(device, "device"),
				"see LOST GPUS in gpuwmctl(1)", "the GPU is lost: %s",
				answer_text(lost, "message"));
	}
}

void check_sockets(struct findings *findings, const char *socket)
{
	struct error said = {0};
	json_t *status;

	socket_judge(findings, socket, false, &said);
	socket_judge(findings, socket, true, &said);
	status = gpuwmd_status(socket);
	if (!status)
		return;
	versions_judge(findings, socket, status);
	kept_judge(findings, status);
	state_judge(findings, status);
	json_decref(status);
}
