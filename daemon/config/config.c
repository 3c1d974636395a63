#include "config_internal.h"
#include "../../service/ini_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- defaults ---- */

static void default_sockets(struct config *config)
{
	const char *directory = geteuid() == 0 ? NULL : getenv("XDG_RUNTIME_DIR");

	if (!directory || directory[0] != '/' ||
	    strlen(directory) > PATH_BYTES_MAX - sizeof("/gpuwm/admin.sock"))
		directory = "/run";
	snprintf(config->socket, sizeof(config->socket), "%s/gpuwm/gpuwm.sock", directory);
	snprintf(config->admin_socket, sizeof(config->admin_socket), "%s/gpuwm/admin.sock", directory);
}

/* Beside the running program as in a build tree, else where `make install` puts it. */
static void default_loader(struct config *config)
{
	static const char *const places[] = {"../libexec/gpuwm/gpuwm-loader", "gpuwm-loader"};
	char program[PATH_BYTES_MAX + 1];
	ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
	size_t i = 2;

	if (bytes < 0)
		return;
	program[bytes] = '\0';
	*strrchr(program, '/') = '\0';
	do {
		i--;
		int added = snprintf(config->loader, sizeof(config->loader), "%s/%s", program, places[i]);
		if ((size_t)added >= sizeof(config->loader))
			config->loader[0] = '\0';
	} while (i > 0 && access(config->loader, X_OK) < 0);
}

void config_init(struct config *config)
{
	const char *folder = getenv("STATE_DIRECTORY");

	*config = (struct config){
		.socket_mode = 0660,
		.admin_mode = 0600,
		.publish_group = PUBLISH_GROUP,
		.observe_group = OBSERVE_GROUP,
		.quota = quota_defaults,
		.sessions = SESSIONS_MAX,
		.connects_per_second = CONNECTS_PER_SECOND,
		.loaders = LOADERS_MAX,
		.check_stall_ms = CHECK_STALL_MS,
		.load_stall_ms = LOAD_STALL_MS,
		.loader_start_ms = LOADER_START_MS,
		.grace_ms = GRACE_MS,
		.publish_silence_ms = PUBLISH_SILENCE_MS,
		.failed_keep_s = FAILED_KEEP_SECONDS,
		.keep_checker_s = CHECKER_KEEP_SECONDS,
		.keep_copy_s = COPY_KEEP_SECONDS,
		.store_confirm_ms = STORE_CONFIRM_MS,
		.scrub_interval = SCRUB_INTERVAL,
		.scrub_duty = SCRUB_DUTY,
		.tiers_restore = true,
		.min_resident_s = MIN_RESIDENT_SECONDS,
		.log_level = LOG_LEVEL_INFO,
	};
	default_sockets(config);
	default_loader(config);
	/* systemd names the folder of a unit with StateDirectory=; a user who starts gpuwmd has none. */
	if (folder && folder[0] == '/' && strlen(folder) <= PATH_BYTES_MAX && !strchr(folder, ':'))
		strcpy(config->tiers_folder, folder);
}

void config_clear_roots(struct config *config)
{
	while (config->root_count > 0)
		free(config->roots[--config->root_count]);
}

void config_clear(struct config *config)
{
	config_clear_roots(config);
	rules_clear(&config->rules);
	peer_settings_clear(&config->peers);
}

/* ---- one key ---- */

int config_set(struct config *config, const char *section, const char *key, const char *value,
	       struct error *error)
{
	char why[CONFIG_WHY_BYTES];
	size_t i = 0;
	int r;

	if (config_is_rule(section))
		return config_set_rule(config, section, key, value, error);
	while (i < config_key_count && (strcmp(config_keys[i].section, section) != 0 ||
					(config_keys[i].key && strcmp(config_keys[i].key, key) != 0)))
		i++;
	if (i == config_key_count)
		return config_no_key(section, key, error);
	r = config_keys[i].set(config, &config_keys[i], key, value, why);
	if (r == -ENOMEM)
		return error_set(error, r, NULL, "gpuwmd is out of memory");
	if (r < 0)
		return error_set(error, r, config_keys[i].help, "[%s] %s = %.256s: %s", section, key, value,
				 why);
	return 0;
}

/* ---- the file ---- */

static int take_key(void *user, const char *section, const char *key, const char *value, struct error *error)
{
	return config_set(user, section, key, value, error);
}

int config_read(struct config *config, const char *path, struct error *error)
{
	const struct ini_file file = {.path = path,
				      .missing = "make the file, or name another one with --config",
				      .too_long = "use a flag for longer values",
				      .take = take_key,
				      .user = config};

	return ini_file_read(&file, error);
}

/* ---- descriptors ---- */

/* Besides the limits below: the loop, standard streams, listeners, the lock, a loader more than `loaders`, and to spare; each user's share
 * of the loop's time; refused connections that are being closed, and that wait for it; operators' connections above all. */
#define FILES_BASE (64 + FAIR_SHARES_MAX + 2 * DISCARD_MAX + FILES_PER_SESSION * ADMIN_SESSIONS_MORE)
#define FILES_PER_SESSION 2 /* socket and pidfd */
/* The folder of descriptions, a file of it, and the indices of a batch: two versions of the most parts. */
#define FILES_OF_DESCRIPTIONS (2 + 2 * PARTS_PER_VERSION_MAX)
/* Socket, pidfd, and a publisher's pair on its way, or its end for the checker and a copy of that. */
#define FILES_PER_LOADER 4
#define FILES_PER_HOLDER 2 /* of a copy: socket and pidfd */

int config_check_files(const struct config *config, struct error *error)
{
	uint64_t needed = FILES_BASE + FILES_PER_SESSION * config->sessions +
			  FILES_PER_LOADER * config->loaders + FILES_PER_HOLDER * COPIES_MAX + STORE_FDS_MAX +
			  REVOKED_GONE_MAX + FILES_OF_DESCRIPTIONS + CHECKS_OPEN_MAX + PACKET_FDS_MAX;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return error_set(error, -errno, NULL, "RLIMIT_NOFILE can't be read: %s", strerror(errno));
	if (files.rlim_cur >= needed)
		return 0;
	if (files.rlim_max < needed)
		return error_set(
			error, -EINVAL,
			"raise RLIMIT_NOFILE (ulimit -Hn, or LimitNOFILE= under systemd), or lower sessions in [limits]",
			"%llu sessions need up to %llu open files, the hard limit is %llu",
			(unsigned long long)config->sessions, (unsigned long long)needed,
			(unsigned long long)files.rlim_max);
	files.rlim_cur = needed;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return error_set(error, -errno, NULL, "RLIMIT_NOFILE can't be raised to %llu: %s",
				 (unsigned long long)needed, strerror(errno));
	return 0;
}
