#include "config_internal.h"
#include "../../base/bytes.h"
#include "../../base/limits.h"
#include "../../proto/names.h"
#include "../../proto/socket_place.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setters ---- */

__attribute__((format(printf, 2, 3))) static int key_refuse(char why[CONFIG_WHY_BYTES], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, CONFIG_WHY_BYTES, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static void *field(struct config *config, const struct config_key *row)
{
	return (char *)config + row->offset;
}

static int check_path(const char *value, size_t bytes_max, char why[CONFIG_WHY_BYTES])
{
	if (value[0] != '/')
		return key_refuse(why, "is no absolute path");
	if (strlen(value) > bytes_max)
		return key_refuse(why, "has %zu bytes; at most %zu are possible", strlen(value), bytes_max);
	return 0;
}

static int set_socket(struct config *config, const struct config_key *row, const char *key, const char *value,
		      char why[CONFIG_WHY_BYTES])
{
	int r = check_path(value, SOCKET_PATH_BYTES_MAX, why);

	(void)key;
	/* Its lock would lie in the folder, without a name. */
	if (r == 0 && value[strlen(value) - 1] == '/')
		r = key_refuse(why, "names a folder: add the socket's name");
	if (r == 0)
		strcpy(field(config, row), value);
	return r;
}

/* admin.sock in the directory of `socket`. */
static void beside(const char *socket, char admin[PATH_BYTES_MAX + 1])
{
	int directory = (int)(strrchr(socket, '/') - socket);

	snprintf(admin, PATH_BYTES_MAX + 1, "%.*s/admin.sock", directory, socket);
}

/* The operators' socket goes along unless it was put elsewhere. */
static int set_worker_socket(struct config *config, const struct config_key *row, const char *key,
			     const char *value, char why[CONFIG_WHY_BYTES])
{
	char old[PATH_BYTES_MAX + 1];
	int r;

	beside(config->socket, old);
	r = set_socket(config, row, key, value, why);
	if (r == 0 && strcmp(config->admin_socket, old) == 0)
		beside(config->socket, config->admin_socket);
	return r;
}

/* Of path and socket the one that is said last counts, so that a flag wins over the file. */
static int set_loader_path(struct config *config, const struct config_key *row, const char *key,
			   const char *value, char why[CONFIG_WHY_BYTES])
{
	int r = check_path(value, PATH_BYTES_MAX, why);

	(void)key;
	if (r < 0)
		return r;
	strcpy(field(config, row), value);
	config->loader_socket[0] = '\0';
	return 0;
}

static int set_mode(struct config *config, const struct config_key *row, const char *key, const char *value,
		    char why[CONFIG_WHY_BYTES])
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);

	(void)key;
	if (value[0] < '0' || value[0] > '7' || *end != '\0' || mode > 0777)
		return key_refuse(why, "is no octal mode from 0 to 0777");
	*(unsigned *)field(config, row) = (unsigned)mode;
	return 0;
}

static int set_group(struct config *config, const struct config_key *row, const char *key, const char *value,
		     char why[CONFIG_WHY_BYTES])
{
	(void)key;
	if (strlen(value) > NAME_BYTES_MAX || strpbrk(value, " \t:,=/"))
		return key_refuse(why, "is no name of a group");
	strcpy(field(config, row), value);
	return 0;
}

static int set_number(struct config *config, const struct config_key *row, const char *key, const char *value,
		      char why[CONFIG_WHY_BYTES])
{
	uint64_t number;

	(void)key;
	if (bytes_parse(value, &number) < 0 || number < row->min || number > row->max)
		return key_refuse(why, "is no number from %llu to %llu", (unsigned long long)row->min,
				  (unsigned long long)row->max);
	*(uint64_t *)field(config, row) = number;
	return 0;
}

/* Users share them. */
static int set_sessions(struct config *config, const struct config_key *row, const char *key, const char *value,
			char why[CONFIG_WHY_BYTES])
{
	int r = set_number(config, row, key, value, why);

	config->quota.all[QUOTA_SESSIONS] = config->sessions;
	return r;
}

static int set_keep_context(struct config *config, const struct config_key *row, const char *key,
			    const char *value, char why[CONFIG_WHY_BYTES])
{
	int r = 0;

	if (strcmp(value, "always") == 0)
		config->keep_context_s = KEEP_ALWAYS;
	else if (set_number(config, row, key, value, why) < 0)
		r = key_refuse(why, "is neither always nor a number of seconds from %llu to %llu",
			       (unsigned long long)row->min, (unsigned long long)row->max);
	return r;
}

static int set_level(struct config *config, const struct config_key *row, const char *key, const char *value,
		     char why[CONFIG_WHY_BYTES])
{
	(void)key;
	if (log_level_parse(value, field(config, row)) < 0)
		return key_refuse(why, "is none of error, warning, info, debug");
	return 0;
}

static int add_root(struct config *config, const struct config_key *row, const char *key, const char *value,
		    char why[CONFIG_WHY_BYTES])
{
	size_t bytes = strlen(value);
	char *root;
	int r = check_path(value, PATH_BYTES_MAX, why);

	(void)row;
	(void)key;
	if (r < 0)
		return r;
	if (!utf8_valid(value))
		return key_refuse(why, "is not UTF-8, as all that is told to clients and loaders must be");
	while (bytes > 1 && value[bytes - 1] == '/')
		bytes--;
	for (size_t i = 0; i < config->root_count; i++) {
		if (strlen(config->roots[i]) == bytes && strncmp(config->roots[i], value, bytes) == 0)
			return 0;
	}
	if (config->root_count == ROOTS_MAX)
		return key_refuse(why, "is one too many: at most %d roots are possible", ROOTS_MAX);
	root = strndup(value, bytes);
	if (!root)
		return -ENOMEM;
	config->roots[config->root_count++] = root;
	return 0;
}

static int set_peer(struct config *config, const struct config_key *row, const char *key, const char *value,
		    char why[CONFIG_WHY_BYTES])
{
	struct error error;
	int r = peer_settings_set(&config->peers, key, value, &error);

	(void)row;
	return r == -EINVAL ? key_refuse(why, "%s", error.message) : r;
}

/* "64G" or "90%". */
static int parse_budget(const char *value, uint64_t *ret_bytes, unsigned *ret_percent)
{
	size_t digits = strspn(value, "0123456789");

	*ret_bytes = 0;
	*ret_percent = 0;
	if (digits == 0 || strcmp(value + digits, "%") != 0)
		return bytes_parse(value, ret_bytes);
	if (digits > 3 || strtoul(value, NULL, 10) > 100)
		return -EINVAL;
	*ret_percent = (unsigned)strtoul(value, NULL, 10);
	return 0;
}

static int set_budget(struct config *config, const struct config_key *row, const char *key, const char *value,
		      char why[CONFIG_WHY_BYTES])
{
	const char *wrong = strcmp(key, "*") == 0 ? NULL : device_wrong(key);
	size_t i = 0;
	uint64_t bytes;
	unsigned percent;

	(void)row;
	if (wrong)
		return key_refuse(why, "the device %s; \"host\", GPU-…, MIG-… and * are possible", wrong);
	if (parse_budget(value, &bytes, &percent) < 0)
		return key_refuse(why, "is neither bytes (with K, M, G or T) nor 0%% to 100%%");
	while (i < config->budget_count && strcmp(config->budgets[i].device, key) != 0)
		i++;
	if (i == CONFIG_BUDGETS_MAX)
		return key_refuse(why, "is one too many: at most %d budgets are possible", CONFIG_BUDGETS_MAX);
	if (i == config->budget_count)
		config->budget_count++;
	strcpy(config->budgets[i].device, key);
	config->budgets[i].bytes = bytes;
	config->budgets[i].percent = percent;
	return 0;
}

/* ---- the table ---- */

#define AT(member) .offset = offsetof(struct config, member)
/* A quota's row of base/quota.h as a key. */
#define QUOTA_KEY(kind, name, unit, all, most, noun, help)                                                     \
	{"limits",                                                                                             \
	 name "_per_uid",                                                                                      \
	 NULL,                                                                                                 \
	 QUOTA_VALUE_##unit,                                                                                   \
	 help,                                                                                                 \
	 set_number,                                                                                           \
	 QUOTA_RANGE_##unit,                                                                                   \
	 AT(quota.per_uid[QUOTA_##kind])},
#define QUOTA_VALUE_THINGS "N"
#define QUOTA_VALUE_BYTES "SIZE"
#define QUOTA_RANGE_THINGS .min = 1, .max = 1000000
#define QUOTA_RANGE_BYTES .min = 0, .max = INT64_MAX
/* A constant's digits, as a text. */
#define DIGITS(constant) DIGITS_(constant)
#define DIGITS_(digits) #digits
#define BUDGET_DEFAULT                                                                                         \
	DIGITS(BUDGET_PERCENT_CUDA) "% of a GPU, " DIGITS(BUDGET_PERCENT_HOST) "% of the host's memory"

const struct config_key config_keys[] = {
	{"socket", "path", "socket", "PATH", "the socket for workers", set_worker_socket, AT(socket)},
	{"socket", "admin_path", "admin-socket", "PATH",
	 "the socket for operators; by default admin.sock in the same folder", set_socket, AT(admin_socket)},
	{"socket", "mode", NULL, "MODE", "the mode of the workers' socket; by default 0660", set_mode,
	 AT(socket_mode)},
	{"socket", "group", NULL, "GROUP", "the group of the workers' socket", set_group, AT(group)},
	{"socket", "admin_mode", NULL, "MODE", "the mode of the operators' socket; by default 0600", set_mode,
	 AT(admin_mode)},
	{"socket", "admin_group", NULL, "GROUP", "the group of the operators' socket", set_group,
	 AT(admin_group)},
	{"access", "publish_group", NULL, "GROUP", "its members may publish versions; by default gpuwm-publish",
	 set_group, AT(publish_group)},
	{"access", "observe_group", NULL, "GROUP",
	 "its members see every model and who uses it, and change nothing; by default gpuwm-observe", set_group,
	 AT(observe_group)},
	{MODEL_SECTION, "match", NULL, "PATTERN",
	 "the models of this section, such as llama/*; if several sections match, only the lowest N counts",
	 NULL, .offset = 0},
	{MODEL_SECTION, "attach", NULL, "NAMES",
	 "users and @groups that may attach; without this key everybody may; may be repeated", NULL,
	 .offset = 0},
	{MODEL_SECTION, "publish", NULL, "NAMES",
	 "users and @groups that may publish, move aliases and retire, as the owner may; may be repeated", NULL,
	 .offset = 0},
	{MODEL_SECTION, "operate", NULL, "NAMES",
	 "users and @groups that may publish, pin, unpin, verify and retire by force; may be repeated", NULL,
	 .offset = 0},
	{MODEL_SECTION, "idle", NULL, "TIME TIER",
	 "30m host: a version that nobody leases for so long is demoted to this tier, host or files; may be repeated",
	 NULL, .offset = 0},
	{MODEL_SECTION, "max_resident", NULL, "N",
	 "versions of one model on its devices at a time; gpuwmd demotes the least recently used one", NULL,
	 .offset = 0},
	{MODEL_SECTION, "host_copy", NULL, "WHEN",
	 "yes (gpuwmd makes a copy of each version), on-demote (a version that comes from host memory keeps its copy there) or no",
	 NULL, .offset = 0},
	{MODEL_SECTION, "evict", NULL, "TIER",
	 "host or files: where versions may be demoted to make room for others, and \"host own\" for versions of the same owner only; by default never",
	 NULL, .offset = 0},
	{MODEL_SECTION, "share", NULL, "PERCENT",
	 "how much of a device regions of one user may take, of what operators' eighth and others leave; by default 50%",
	 NULL, .offset = 0},
	{"tiers", "folder", NULL, "DIR",
	 "where gpuwmd describes versions on disk, so that a reboot finds them; none: nowhere; by default $STATE_DIRECTORY",
	 config_set_folder, AT(tiers_folder)},
	{"tiers", "restore", NULL, "yes|no",
	 "after a start without the memory of the last gpuwmd, promote what was resident; by default yes",
	 config_set_yes, AT(tiers_restore)},
	{"tiers", "min_resident", NULL, "TIME",
	 "a version is not demoted to make room for others before it was resident for so long", config_set_time,
	 AT(min_resident_s), .min = 0, .max = 86400},
	{"loader", "path", "loader", "PATH", "the program gpuwm-loader, which gpuwmd starts", set_loader_path,
	 AT(loader)},
	{"loader", "socket", "loader-socket", "PATH",
	 "the socket of a service that starts loaders: gpuwmd then starts none; if a program is given too, the last one wins",
	 set_socket, AT(loader_socket)},
	{"loader", "root", "root", "DIR",
	 "a folder with models: gpuwmd loads only from below its roots; may be repeated", add_root,
	 .offset = 0},
	{"loader", "keep_context", NULL, "SECONDS",
	 "how long a loader keeps its CUDA contexts for the next load; always: from before the first load; 0: not at all",
	 set_keep_context, AT(keep_context_s), .min = 0, .max = 31536000},
	{"loader", "keep_checker", NULL, "SECONDS",
	 "after a check on a GPU of a version without a name, or of a cached one, how long the checker waits there for the next such version of the same user; 0: not at all",
	 set_number, AT(keep_checker_s), .min = 0, .max = 3600},
	{"loader", "keep_copy", NULL, "SECONDS",
	 "how long a copy for processes that attach by cuda_ipc stays after its last lease; 0: not at all",
	 set_number, AT(keep_copy_s), .min = 0, .max = 3600},
	{"budget", NULL, "budget", "SIZE",
	 "how much of a device versions may take: bytes (K, M, G, T) or a percentage; the device * is every "
	 "GPU that is not named; by default " BUDGET_DEFAULT,
	 set_budget, .offset = 0},
	{"scrub", "interval", NULL, "SECONDS", "from one pass over all ready versions to the next; 0: never",
	 set_number, AT(scrub_interval), .min = 0, .max = 31536000},
	{"scrub", "duty", NULL, "PERCENT", "how much of the time the scrub reads", set_number, AT(scrub_duty),
	 .min = 1, .max = 100},
	{"peers", "certificate", NULL, "FILE",
	 "this node's certificate, with its chain, in PEM: other nodes know it by that", set_peer, .offset = 0},
	{"peers", "key", NULL, "FILE", "the key of the certificate", set_peer, .offset = 0},
	{"peers", "authority", NULL, "FILE", "the certificates of those who sign for other nodes", set_peer,
	 .offset = 0},
	{"peers", "secret", NULL, "FILE",
	 "a secret that all nodes have, instead of certificates: 32 random bytes or more; may be repeated: the first one is for connecting",
	 set_peer, .offset = 0},
	{"peers", "names", NULL, "NAME",
	 "a node that may take versions from this one, by its certificate: a name or *.DOMAIN; may be repeated; by default all",
	 set_peer, .offset = 0},
	{"peers", "peer", NULL, "HOST[:PORT]", "a node to take versions from; may be repeated", set_peer,
	 .offset = 0},
	{"peers", "dns", NULL, "NAME[:PORT]", "a name each of whose addresses is such a node; may be repeated",
	 set_peer, .offset = 0},
	{"peers", "listen", NULL, "ADDRESS:PORT",
	 "where gpuwm-peer serves this node's versions; without it gpuwm-peer does not start", set_peer,
	 .offset = 0},
	{"peers", "encrypt", NULL, "yes|no",
	 "whether the bytes of weights are encrypted where nodes have only TCP; in clear only if both nodes say no",
	 set_peer, .offset = 0},
	{"peers", "takers", NULL, "N",
	 "how many nodes take a version from this one at a time; it sends others on to them", set_peer,
	 .offset = 0},
	{"limits", "sessions", NULL, "N", "connections in all", set_sessions, AT(sessions), .min = 1,
	 .max = 1000000},
	{"limits", "connects_per_second", NULL, "N",
	 "new connections of one user to the workers' socket; at once a user may make sessions_per_uid",
	 set_number, AT(connects_per_second), .min = 1, .max = 1000000},
	QUOTAS(QUOTA_KEY) /* one a user */
	{"limits", "loaders", NULL, "N", "loader processes at once, the standby one included", set_number,
	 AT(loaders), .min = 1, .max = 256},
	{"limits", "loader_start_ms", NULL, "MS", "gpuwmd kills a loader that has not said hello after so long",
	 set_number, AT(loader_start_ms), .min = 100, .max = 3600000},
	{"limits", "check_stall_ms", NULL, "MS", "gpuwmd kills a checker that has said nothing for so long",
	 set_number, AT(check_stall_ms), .min = 100, .max = 3600000},
	{"limits", "load_stall_ms", NULL, "MS",
	 "a load that has made no progress for so long fails; 0: a load may take any time", set_number,
	 AT(load_stall_ms), .min = 0, .max = 86400000},
	{"limits", "publish_silence_ms", NULL, "MS",
	 "a version fails if gpuwmd hears nothing of its publisher for so long before the commit", set_number,
	 AT(publish_silence_ms), .min = 100, .max = 86400000},
	{"limits", "grace_ms", NULL, "MS",
	 "after a restart gpuwmd frees nothing for so long: clients come back and take their leases again",
	 set_number, AT(grace_ms), .min = 0, .max = 3600000},
	{"limits", "failed_keep_s", NULL, "SECONDS",
	 "gpuwmd lists a failed version, with its reason, for so long; 0: until somebody removes it",
	 set_number, AT(failed_keep_s), .min = 0, .max = 31536000},
	{"limits", "store_confirm_ms", NULL, "MS",
	 "how long the service manager may take to confirm what it keeps; a version that waits longer fails",
	 set_number, AT(store_confirm_ms), .min = 10, .max = 3600000},
	{"log", "level", "log-level", "LEVEL", "error, warning, info (the default) or debug", set_level,
	 AT(log_level)},
};
const size_t config_key_count = sizeof(config_keys) / sizeof(config_keys[0]);

/* ---- names that are not there ---- */

static int no_section(const char *section, struct error *error)
{
	char known[TEXT_BYTES_MAX + 1] = "there are";
	size_t used = strlen(known);
	const char *last = "";

	for (size_t i = 0; i < config_key_count; i++) {
		if (strcmp(config_keys[i].section, last) != 0)
			used += (size_t)snprintf(known + used, sizeof(known) - used, " [%s]",
						 config_keys[i].section);
		last = config_keys[i].section;
	}
	return error_set(error, -EINVAL, known, "there is no section [%s]", section);
}

int config_no_key(const char *section, const char *key, struct error *error)
{
	char known[TEXT_BYTES_MAX + 1] = "there are";
	size_t used = strlen(known);
	bool found = false;

	for (size_t i = 0; i < config_key_count; i++) {
		if (strcmp(config_keys[i].section, section) != 0)
			continue;
		used += (size_t)snprintf(known + used, sizeof(known) - used, " %s", config_keys[i].key);
		found = true;
	}
	if (!found)
		return no_section(section, error);
	return error_set(error, -EINVAL, known, "there is no key \"%s\" in [%s]", key, section);
}
