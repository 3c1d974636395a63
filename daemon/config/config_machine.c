/* What this machine has to say to a configuration: its groups, the places of sockets, and the limit of open files. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- groups ---- */

int config_find_group(const char *key, const char *name, gid_t *ret_gid, struct error *error)
{
	if (group_find(name, ret_gid))
		return 0;
	return error_set(error, -EINVAL, "name a group of this machine, or its number, without leading zeros",
			 "%s: there is no group \"%s\" here", key, name);
}

static int groups_find(const struct config *config, struct error *error)
{
	/* usual: the name that nobody wrote, which a machine need not have */
	const struct {
		const char *key, *name, *usual;
	} groups[] = {{SOCKET_GROUP_KEY, config->group, ""},
		      {ADMIN_GROUP_KEY, config->admin_group, ""},
		      {"[access] publish_group", config->publish_group, PUBLISH_GROUP},
		      {"[access] observe_group", config->observe_group, OBSERVE_GROUP}};
	gid_t gid;
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (groups[i].name[0] && strcmp(groups[i].name, groups[i].usual) != 0)
			r = config_find_group(groups[i].key, groups[i].name, &gid, error);
	}
	return r;
}

/* ---- sockets ---- */

/* A socket that gpuwmd makes itself. */
struct own_socket {
	const char *path_key, *path, *kept_at, *group_key, *group;
};

/* Whether the path is wrong for whoever runs gpuwmd. The other errors depend on the user. */
static bool is_of_path(int code)
{
	return code == -ENAMETOOLONG || code == -ENOENT || code == -ENOTDIR || code == -EEXIST;
}

/* Of an error that the configuration can avoid. Whoever asked for a reload is not who lacks a right, or a file. */
static int code_of(int r)
{
	return is_of_path(r) || r == -EACCES || r == -EPERM || r == -EROFS ? -EINVAL : r;
}

/* The socket of the last gpuwmd needs no room in its folder: gpuwmd opens the lock that lies beside the socket. */
static bool is_made(const char *path)
{
	char lock[SOCKET_PATH_BYTES_MAX + sizeof(".lock")];
	struct error error;

	snprintf(lock, sizeof(lock), "%s.lock", path);
	return socket_file_check(path, &error) == 1 && faccessat(AT_FDCWD, lock, R_OK | W_OK, AT_EACCESS) == 0;
}

static int place_judge(const struct own_socket *own, const struct config_judge *judge, struct error *error)
{
	struct error why;
	int r = socket_place_check(own->path, geteuid(), &why);

	if (r == 0 || (r == -EACCES && is_made(own->path)))
		return 0;
	if (r == -EPERM || (judge->may_be_other && !is_of_path(r))) {
		log_warning("%s: %s: %s", own->path_key, why.message, why.detail);
		return 0;
	}
	return error_set(error, code_of(r), why.detail, "%s: %s", own->path_key, why.message);
}

/* Whether the last gpuwmd's socket has the group already, or a new one will have it from its folder: then every owner may set it. */
static bool has_group(const struct own_socket *own, gid_t gid)
{
	char folder[SOCKET_PATH_BYTES_MAX + 1];
	struct stat st;

	if (strcmp(own->path, own->kept_at) == 0 && lstat(own->path, &st) == 0)
		return st.st_gid == gid;
	snprintf(folder, sizeof(folder), "%.*s/", (int)(strrchr(own->path, '/') - own->path), own->path);
	return stat(folder, &st) == 0 && st.st_mode & S_ISGID && st.st_gid == gid;
}

static int group_judge(const struct own_socket *own, const struct config_judge *judge, struct error *error)
{
	gid_t gid;
	int r = config_find_group(own->group_key, own->group, &gid, error), fd;

	if (r < 0)
		return r;
	/* The kernel judges: a memfd is this user's own file, as the socket will be. */
	fd = memfd_create("gpuwm-group", MFD_CLOEXEC);
	if (fd < 0 || fchown(fd, (uid_t)-1, gid) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	if (r == 0 || has_group(own, gid))
		return 0;
	error_set(
		error, code_of(r),
		"name a group that this user is a member of, or none; or make the user a member of the group, "
		"and start what starts gpuwmd again, since a process keeps the groups of its start",
		"%s: uid %u may not give the socket %s to the group %s: %s", own->group_key,
		(unsigned)geteuid(), own->path, own->group, strerror(-r));
	if (!judge->may_be_other)
		return error->code;
	log_warning("%s: %s", error->message, error->detail);
	return 0;
}

/* A gpuwmd that found the other socket there would wait for a process that does not end. */
static int other_judge(const struct own_socket *own, const char *other_at, struct error *error)
{
	if (strcmp(own->path, other_at) != 0)
		return 0;
	return error_set(error, -EINVAL,
			 "name a new path for one of them; once gpuwmd serves there, the old one is free",
			 "%s: gpuwmd's other socket is at %s, and the two can't change places", own->path_key,
			 own->path);
}

static int sockets_judge(const struct config *config, const struct config_judge *judge, struct error *error)
{
	const struct own_socket worker = {"[socket] path", config->socket, judge->worker_at, SOCKET_GROUP_KEY,
					  config->group};
	const struct own_socket admin = {"[socket] admin_path", config->admin_socket, judge->admin_at,
					 ADMIN_GROUP_KEY, config->admin_group};
	int r = judge->worker_passed ? 0 : place_judge(&worker, judge, error);

	if (r == 0 && !judge->admin_passed)
		r = place_judge(&admin, judge, error);
	if (r == 0 && !judge->worker_passed)
		r = other_judge(&worker, judge->admin_at, error);
	if (r == 0 && !judge->admin_passed)
		r = other_judge(&admin, judge->worker_at, error);
	if (r == 0 && !judge->worker_passed && worker.group[0])
		r = group_judge(&worker, judge, error);
	if (r == 0 && !judge->admin_passed && admin.group[0])
		r = group_judge(&admin, judge, error);
	return r;
}

int config_check_machine(const struct config *config, const struct config_judge *judge, struct error *error)
{
	int r = groups_find(config, error);

	if (r == 0)
		r = config_check_files(config, error);
	return r == 0 ? sockets_judge(config, judge, error) : r;
}
