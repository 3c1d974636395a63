#include "../base/probe.h"
#include "config_internal.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What getopt_long returns: these, and FLAG_KEY plus the position in config_keys. */
enum { FLAG_CONFIG = 256, FLAG_SET, FLAG_CHECK, FLAG_HELP, FLAG_VERSION, FLAG_KEY };

#define FLAGS_MAX 32

static void options_make(struct option options[FLAGS_MAX])
{
	static const struct option own[] = {
		{"config", required_argument, NULL, FLAG_CONFIG}, {"set", required_argument, NULL, FLAG_SET},
		{"check-config", no_argument, NULL, FLAG_CHECK},  {"help", no_argument, NULL, FLAG_HELP},
		{"version", no_argument, NULL, FLAG_VERSION},
	};
	size_t count = sizeof(own) / sizeof(own[0]);

	memset(options, 0, FLAGS_MAX * sizeof(*options));
	memcpy(options, own, sizeof(own));
	for (size_t i = 0; i < config_key_count && count < FLAGS_MAX - 1; i++) {
		if (config_keys[i].flag)
			options[count++] = (struct option){config_keys[i].flag, required_argument, NULL,
							   FLAG_KEY + (int)i};
	}
}

/* ---- help ---- */

static void print_entry(const char *left, const char *right)
{
	printf("  %-34s %s\n", left, right);
}

static void print_flags(void)
{
	char left[64];

	print_entry("--config FILE", "the configuration file; a flag wins over its key there");
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *row = &config_keys[i];
		if (!row->flag)
			continue;
		snprintf(left, sizeof(left), "--%s %s%s", row->flag, row->key ? "" : "DEVICE=", row->value);
		print_entry(left, row->help);
	}
	print_entry("--set SECTION.KEY=VALUE", "any key of the file; may be repeated");
	print_entry("--check-config", "check the file and the flags, print the first error, and end");
	print_entry("--help", "print this");
	print_entry("--version", "print the version");
}

static void print_keys(void)
{
	struct config defaults;
	const char *section = "";
	const uint64_t *value;
	char left[64], right[256];

	config_init(&defaults);
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *row = &config_keys[i];
		if (strcmp(row->section, section) != 0)
			printf("  [%s]\n", row->section);
		section = row->section;
		snprintf(left, sizeof(left), "%s = %s", row->key ? row->key : "DEVICE", row->value);
		value = (const uint64_t *)((const char *)&defaults + row->offset);
		if (row->max == 0 || *value == QUOTA_NONE) /* then the text says it */
			snprintf(right, sizeof(right), "%s", row->help);
		else
			snprintf(right, sizeof(right), "%s; by default %llu", row->help,
				 (unsigned long long)*value);
		print_entry(left, right);
	}
	config_clear(&defaults);
}

/* ---- reading ---- */

static int usage(struct error *error, const char *what, const char *flag)
{
	return error_set(error, -EINVAL, "gpuwmd --help tells the flags", "%s: %s", flag, what);
}

/* The next flag, -1 at the end, or -EINVAL. argv[0] is no flag. */
static int flag_next(int argc, char **argv, const struct option *options, struct error *error)
{
	int flag = getopt_long(argc, argv, "+:", options, NULL);

	if (flag == -1 && optind < argc)
		return usage(error, "arguments without a flag are not taken", argv[optind]);
	if (flag == ':')
		return usage(error, "its value is missing", argv[optind - 1]);
	if (flag == '?')
		return usage(error, "there is no such flag, or it takes no value", argv[optind - 1]);
	return flag;
}

/* Splits a copy of "SECTION.KEY=VALUE", or of "DEVICE=SIZE" where the section is known. No key has a dot, [model.1] has one. */
static int set_pair(struct config *config, const char *flag, const char *section, const char *pair,
		    struct error *error)
{
	char *copy = strdup(pair), *key = copy, *value;
	int r;

	if (!copy)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	value = strchr(copy, '=');
	if (value)
		*value++ = '\0';
	if (!section) {
		section = copy;
		key = strrchr(copy, '.');
		if (key)
			*key++ = '\0';
	}
	if (key && value)
		r = config_set(config, section, key, value, error);
	else
		r = usage(error, "its value has the form SECTION.KEY=VALUE, or DEVICE=SIZE for a budget", flag);
	free(copy);
	return r;
}

static int apply(struct config *config, int flag, const char *value, bool *roots_given, struct error *error)
{
	const struct config_key *row = &config_keys[flag >= FLAG_KEY ? flag - FLAG_KEY : 0];
	static const char root[] = "loader.root=";

	if (flag == FLAG_CONFIG)
		return 0;
	if (flag == FLAG_CHECK) {
		config->check_only = true;
		return 0;
	}
	if ((flag == FLAG_SET && strncmp(value, root, sizeof(root) - 1) == 0) ||
	    (flag >= FLAG_KEY && strcmp(row->flag, "root") == 0)) {
		if (!*roots_given)
			config_clear_roots(config);
		*roots_given = true;
	}
	if (flag == FLAG_SET)
		return set_pair(config, "--set", NULL, value, error);
	if (!row->key)
		return set_pair(config, "--budget", row->section, value, error);
	return config_set(config, row->section, row->key, value, error);
}

/* ---- the environment ---- */

/* As clients find the sockets: a relative path counts from the working folder, and admin.sock lies beside. */
static int apply_environment(struct config *config, struct error *error)
{
	const char *given = getenv("GPUWM_SOCKET");
	char path[PATH_BYTES_MAX + 1] = "", admin[PATH_BYTES_MAX + 1 + sizeof("admin.sock")];
	size_t used = 0;
	int r;

	if (!given || !*given)
		return 0;
	if (given[0] != '/' && getcwd(path, sizeof(path) - 1)) {
		used = strlen(path);
		path[used++] = '/';
	}
	snprintf(path + used, sizeof(path) - used, "%s", given);
	r = config_set(config, "socket", "path", path, error);
	if (r < 0)
		return error_set(error, r, error->detail, "GPUWM_SOCKET: %s", error->message);
	snprintf(admin, sizeof(admin), "%.*s/admin.sock", (int)(strrchr(path, '/') - path), path);
	r = config_set(config, "socket", "admin_path", admin, error);
	return r < 0 ? error_set(error, r, error->detail, "GPUWM_SOCKET: %s", error->message) : 0;
}

static int config_check_all(const struct config *config, struct error *error)
{
	if (strcmp(config->socket, config->admin_socket) == 0)
		return error_set(error, -EINVAL, "operators need a socket of their own",
				 "path and admin_path in [socket] are both %s", config->socket);
	if (config->group[0] != '\0' && !(config->socket_mode & 0020))
		return error_set(error, -EINVAL, "connecting needs write permission: 0660",
				 "[socket] mode %04o lets nobody in of group %s", config->socket_mode,
				 config->group);
	if (config->admin_group[0] != '\0' && !(config->admin_mode & 0020))
		return error_set(error, -EINVAL, "connecting needs write permission: set admin_mode = 0660",
				 "[socket] admin_mode %04o lets nobody in of admin_group %s",
				 config->admin_mode, config->admin_group);
	if (config->keep_context_s > 0 && config->loaders < 2)
		return error_set(
			error, -EINVAL, "raise loaders to 2 at least, or set keep_context = 0",
			"[loader] keep_context needs a second loader for checks, and loaders in [limits] is %llu",
			(unsigned long long)config->loaders);
	return peer_settings_check(&config->peers, error);
}

/* Checks all flags before any counts. 0 with the file's name, or 1: help or version was printed. */
static int flags_scan(int argc, char **argv, const struct option *options, const char **ret_file,
		      struct error *error)
{
	int flag;

	opterr = 0;
	optind = 0; /* getopt starts anew */
	*ret_file = NULL;
	while ((flag = flag_next(argc, argv, options, error)) >= 0) {
		if (flag == FLAG_HELP) {
			printf("usage: gpuwmd [FLAG]...\n\n"
			       "Holds model weights in memory and hands them to workers.\n\nFlags:\n");
			print_flags();
			printf("\nThe configuration file (and --set):\n");
			print_keys();
			return 1;
		}
		if (flag == FLAG_VERSION)
			return printf("gpuwmd " GPUWM_VERSION "\nUSDT probes: " PROBES_BUILT_IN "\n") > 0;
		if (flag == FLAG_CONFIG)
			*ret_file = optarg;
	}
	return flag == -1 ? 0 : flag;
}

int config_arguments(struct config *config, int argc, char **argv, struct error *error)
{
	struct option options[FLAGS_MAX];
	bool roots_given = false;
	int flag, r;

	config->argc = argc;
	config->argv = argv;
	options_make(options);
	r = flags_scan(argc, argv, options, &config->file, error);
	if (r == 0 && config->file)
		r = config_read(config, config->file, error);
	if (r == 0)
		r = apply_environment(config, error);
	optind = 0;
	while (r == 0 && (flag = flag_next(argc, argv, options, error)) >= 0)
		r = apply(config, flag, optarg, &roots_given, error);
	if (r == 0)
		r = config_check_rules(config, error);
	return r == 0 ? config_check_all(config, error) : r;
}

/* ---- locked ---- */

/* Of the flags that can be read those about sockets, whatever else is wrong. */
static void apply_socket_flags(struct config *config)
{
	static const char section[] = "socket";
	struct option options[FLAGS_MAX];
	bool roots_given = false;
	struct error error;
	int flag;

	options_make(options);
	opterr = 0;
	optind = 0;
	while ((flag = flag_next(config->argc, config->argv, options, &error)) >= 0) {
		if ((flag >= FLAG_KEY && strcmp(config_keys[flag - FLAG_KEY].section, section) == 0) ||
		    (flag == FLAG_SET && strncmp(optarg, section, sizeof(section) - 1) == 0))
			apply(config, flag, optarg, &roots_given, &error);
	}
}

void config_keep_sockets(struct config *config)
{
	struct config fresh;
	struct error error;

	apply_environment(config, &error);
	apply_socket_flags(config);
	config_init(&fresh);
	strcpy(fresh.socket, config->socket);
	strcpy(fresh.admin_socket, config->admin_socket);
	fresh.file = config->file;
	fresh.argc = config->argc;
	fresh.argv = config->argv;
	config_clear(config);
	*config = fresh;
}
