/* Configuration: a small file (inih), $GPUWM_SOCKET, and flags. A flag wins over $GPUWM_SOCKET, and both win over the
 * file.
 *
 *   [socket]  path, admin_path (admin.sock beside path), mode (0660), group, admin_mode (0600), admin_group
 *   [access]  publish_group (gpuwm-publish), observe_group (gpuwm-observe)
 *   [model.N] match, attach, publish, operate, idle, max_resident, evict: rules.h
 *   [tiers]   folder ($STATE_DIRECTORY, else none), restore (yes), min_resident (10s)
 *   [loader]  path or socket (if the file has both, the last one wins), roots (one `root =` a line, may repeat),
 *            keep_context (seconds, or always), keep_checker, keep_copy (seconds)
 *   [budget]  host = 64G, GPU-… = 120G, * = 90%  (every GPU that is not named)
 *   [peers]   other nodes: ../../service/peers.h
 *   [scrub]   interval (86400 seconds; 0: never), duty (1 percent)
 *   [limits]  the keys of ../base/quota.h, sessions, connects_per_second, loaders, check_stall_ms, load_stall_ms,
 *            loader_start_ms, grace_ms, store_confirm_ms, publish_silence_ms, failed_keep_s
 *   [log]     level = error | warning | info | debug
 */
#ifndef GPUWM_DAEMON_CONFIG_H
#define GPUWM_DAEMON_CONFIG_H

#include "../../base/errors.h"
#include "../../service/log.h"
#include "../base/quota.h"
#include "../../proto/socket_place.h"
#include "../../service/peers.h"
#include "rules.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CONFIG_BUDGETS_MAX 65
/* The groups of [access] where the configuration names none. Packages make them; a machine without them has no such members. */
#define PUBLISH_GROUP "gpuwm-publish"
#define OBSERVE_GROUP "gpuwm-observe"
#define SOCKET_GROUP_KEY "[socket] group"
#define ADMIN_GROUP_KEY "[socket] admin_group"
#define KEEP_ALWAYS UINT64_MAX /* in keep_context_s */

struct config {
	char socket[PATH_BYTES_MAX + 1], admin_socket[PATH_BYTES_MAX + 1];
	unsigned socket_mode, admin_mode;
	char group[NAME_BYTES_MAX + 1], admin_group[NAME_BYTES_MAX + 1]; /* "": left alone */
	char publish_group[NAME_BYTES_MAX + 1], observe_group[NAME_BYTES_MAX + 1];
	struct rules rules;
	char loader[PATH_BYTES_MAX + 1]; /* default: gpuwm-loader beside gpuwmd, else ../libexec/gpuwm/ */
	char loader_socket[PATH_BYTES_MAX + 1]; /* "": loaders are started, not connected to */
	uint64_t
		keep_context_s; /* a loader keeps its CUDA contexts for the next load; 0: it ends with its job */
	uint64_t keep_checker_s; /* a checker stays for further checks of its user; 0: it ends with its job */
	uint64_t keep_copy_s; /* a copy by CUDA IPC stays after its last lease; 0: it ends with it */
	char *roots[ROOTS_MAX]; /* absolute, no trailing slash */
	size_t root_count;
	struct {
		char device[DEVICE_BYTES_MAX + 1]; /* "*": every GPU not named */
		uint64_t bytes; /* 0: percent counts */
		unsigned percent;
	} budgets[CONFIG_BUDGETS_MAX];
	size_t budget_count;
	struct peer_settings peers;
	struct quota_limits quota;
	uint64_t sessions, connects_per_second, loaders, check_stall_ms, load_stall_ms, loader_start_ms,
		grace_ms, store_confirm_ms, publish_silence_ms, failed_keep_s;
	uint64_t scrub_interval, scrub_duty; /* seconds; percent */
	char tiers_folder[PATH_BYTES_MAX + 1]; /* for descriptions of versions; "": none are written */
	bool tiers_restore; /* what was resident is promoted after a start that found no memory of it */
	uint64_t min_resident_s; /* a version is not evicted before it was resident for so long */
	enum log_level log_level;
	bool check_only; /* --check-config: the process ends once it has read the configuration */
	int argc; /* what config_arguments read, for a reload; the caller's */
	char **argv;
	const char *file; /* the file that --config names, in argv; NULL: there is no --config */
};

/* Defaults. The socket paths follow $XDG_RUNTIME_DIR for users, /run/gpuwm for root. */
void config_init(struct config *config);
void config_clear(struct config *config);

/* Sets all but the paths of the sockets, the file and the arguments to the defaults: for a gpuwmd that is locked, since the
 * configuration can't be used. The paths are those of the command line, $GPUWM_SOCKET or the file, as far as they can
 * be read. */
void config_keep_sockets(struct config *config);

/* Reads a file. -EINVAL names file, line, section, key and what is allowed; -ENOENT. */
int config_read(struct config *config, const char *path, struct error *error);
/* Sets one key as a file would ("loader", "root", "/models"): used by flags too. -EINVAL. */
int config_set(struct config *config, const char *section, const char *key, const char *value,
	       struct error *error);

/* Reads the file that --config names, then $GPUWM_SOCKET, then the flags, of which each overrides what was read before
 * it. Roots given by flags replace the file's. Returns 0 if gpuwmd is to run, 1 if it printed its help or its version to
 * stdout. -EINVAL: a wrong flag, with the usage; all errors of config_read. */
int config_arguments(struct config *config, int argc, char **argv, struct error *error);

/* For whom config_check_machine judges. */
struct config_judge {
	/* A service manager passes the socket: gpuwmd leaves its folder, its group and its mode as they are. */
	bool worker_passed, admin_passed;
	/* Where the sockets of the last gpuwmd are; "": there is none. A service manager holds them, so that they listen. */
	char worker_at[SOCKET_PATH_BYTES_MAX + 2], admin_at[SOCKET_PATH_BYTES_MAX + 2];
	/* Another user may run gpuwmd than the one of this process, so that what depends on the user is only logged as a warning. */
	bool may_be_other;
};
/* Judges what depends on this machine, besides the configuration's words: at start, at a reload and for --check-config. It is the
 * only judge of these things.
 *
 * - Looks up the groups of [socket] and [access]; PUBLISH_GROUP and OBSERVE_GROUP need not be there. -EINVAL: a group is not
 *   there, which the error names.
 * - Compares the product of the limits with RLIMIT_NOFILE, and raises its soft limit to what is needed. -EINVAL: the hard limit
 *   is lower, and the error says how many files are needed, how many the process may open, and the remedies. -errno: a limit
 *   can't be read or raised.
 * - Judges where gpuwmd makes sockets, by socket_place_check; but if others can put a socket there, it only logs a warning. The last
 *   gpuwmd's socket may stay where it is.
 * - Judges whether this process may give the sockets to their groups.
 *   Both fail with -EINVAL if another setting helps, and with another -errno if the machine failed.
 *
 * Neither socket may take the place that the other one has.
 *
 * It makes nothing. What only shows when a socket is made (another gpuwmd serves there) is not judged. */
int config_check_machine(const struct config *config, const struct config_judge *judge, struct error *error);
/* Compares the limits with RLIMIT_NOFILE, as above, and looks up no group. */
int config_check_files(const struct config *config, struct error *error);
/* Finds the group that a key names. -EINVAL: the error names the key. */
int config_find_group(const char *key, const char *name, gid_t *ret_gid, struct error *error);

/* ---- users and groups: config_rules.c ----
 * Users and groups of this machine, as the configuration names them: by name, or by number without leading zeros. Each call asks
 * the machine's user database, which may lie on a network: at start and at a reload, never while requests wait. */

/* Sets *ret_id. Returns false if nobody has the name. */
bool user_find(const char *name, uint32_t *ret_id);
bool group_find(const char *name, uint32_t *ret_id);

#endif
