#include "../base/probe.h"
#include "../../service/option.h"
#include "config_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SET_FORM "SECTION.KEY=VALUE"
#define BUDGET_FORM "DEVICE=SIZE"
#define KEY_COLUMNS 26 /* a longer key stands on a line of its own */

/* ---- taking -------------------------------------------------------------- */

/* The command line is walked once for each of them. */
enum pass {
	PASS_FILE, /* which file --config names, since the file is read before the other flags count */
	PASS_ALL,
	PASS_SOCKETS, /* flags about sockets, as far as they can be read */
};

/* What the takers of rows get. */
struct flags {
	struct config *config;
	enum pass pass;
	bool roots_given; /* roots of flags replace the file's */
};

/* name: a key's, which begins with its section. */
static bool flags_count(const struct flags *flags, const char *name)
{
	static const char sockets[] = "socket";

	return flags->pass == PASS_ALL ||
	       (flags->pass == PASS_SOCKETS && strncmp(name, sockets, sizeof(sockets) - 1) == 0);
}

/* Splits a copy of "SECTION.KEY=VALUE", or of "DEVICE=SIZE" where the section is known. No key has a dot, [model.1] has one. */
static int set_pair(struct config *config, const struct option_row *row, const char *section, const char *pair,
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
		r = error_set(error, -EINVAL, row->help, "--%s takes %s, not '%s'", row->name, row->value,
			      pair);
	free(copy);
	return r;
}

static void roots_replace(struct flags *flags)
{
	if (!flags->roots_given)
		config_clear_roots(flags->config);
	flags->roots_given = true;
}

static int take_set(const struct option_row *row, const char *text, void *data, struct error *error)
{
	static const char root[] = "loader.root=";
	struct flags *flags = data;
	int r;

	if (!flags_count(flags, text))
		return 0;
	if (strncmp(text, root, sizeof(root) - 1) == 0)
		roots_replace(flags);
	r = set_pair(flags->config, row, NULL, text, error);
	return flags->pass == PASS_SOCKETS ? 0 : r;
}

static const struct config_key *key_of(const struct option_row *row)
{
	const struct config_key *key = config_keys;

	while (!key->flag || strcmp(key->flag, row->name) != 0)
		key++;
	return key;
}

static int take_flag(const struct option_row *row, const char *text, void *data, struct error *error)
{
	const struct config_key *key = key_of(row);
	struct flags *flags = data;
	int r;

	if (!flags_count(flags, key->section))
		return 0;
	if (strcmp(key->flag, "root") == 0)
		roots_replace(flags);
	r = key->key ? config_set(flags->config, key->section, key->key, text, error)
		     : set_pair(flags->config, row, key->section, text, error);
	return flags->pass == PASS_SOCKETS ? 0 : r;
}

/* ---- the table ----------------------------------------------------------- */

static void print_keys(void)
{
	struct config defaults;
	const char *section = "";
	const uint64_t *value;
	char left[64], right[512];

	printf("\nThe configuration file (and --set):\n");
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
		help_entry_print(left, KEY_COLUMNS, right);
	}
	config_clear(&defaults);
}

/* gpuwmd's own flags, and those of keys. */
static struct command_line line_make(struct config *config, struct option_row rows[OPTION_ROWS_MAX])
{
	const struct option_row last[] = {
		{"set", "any key of the file; may be repeated", SET_FORM, take_set, .repeats = true},
		{"check-config", "check the file and the options, print the first error, and end",
		 .into = &config->check_only},
		{0},
	};
	struct option_row *row = rows;

	*row++ = (struct option_row){.name = "config",
				     .value = "FILE",
				     .take = take_text,
				     .into = &config->file,
				     .help = "the configuration file; an option wins over its key there"};
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (key->flag && row < rows + OPTION_ROWS_MAX - sizeof(last) / sizeof(*last))
			*row++ = (struct option_row){.name = key->flag,
						     .value = key->key ? key->value : BUDGET_FORM,
						     .repeats = true,
						     .take = take_flag,
						     .help = key->help};
	}
	memcpy(row, last, sizeof(last));
	return (struct command_line){.program = "gpuwmd",
				     .usage = "[OPTION]...",
				     .about = "Holds model weights in memory and hands them to workers.",
				     .rows = rows,
				     .version = GPUWM_VERSION "\nUSDT probes: " PROBES_BUILT_IN,
				     .more = print_keys};
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

static int flags_take(struct config *config, enum pass pass, struct error *error)
{
	struct flags flags = {.config = config, .pass = pass};
	struct option_row rows[OPTION_ROWS_MAX];
	const struct command_line line = line_make(config, rows);

	return command_line_take(&line, config->argc, config->argv, &flags, NULL, error);
}

int config_arguments(struct config *config, int argc, char **argv, struct error *error)
{
	struct option_row rows[OPTION_ROWS_MAX];
	const struct command_line line = line_make(config, rows);
	int r;

	config->argc = argc;
	config->argv = argv;
	config->file = NULL;
	r = command_line_check(&line, argc, argv, error); /* all flags, before any counts */
	if (r == 0)
		r = flags_take(config, PASS_FILE, error);
	if (r == 0 && config->file)
		r = config_read(config, config->file, error);
	if (r == 0)
		r = apply_environment(config, error);
	if (r == 0)
		r = flags_take(config, PASS_ALL, error);
	if (r == 0)
		r = config_check_rules(config, error);
	return r == 0 ? config_check_all(config, error) : r;
}

/* ---- locked ---- */

void config_keep_sockets(struct config *config)
{
	struct config fresh;
	struct error error;

	apply_environment(config, &error);
	flags_take(config, PASS_SOCKETS, &error);
	config_init(&fresh);
	strcpy(fresh.socket, config->socket);
	strcpy(fresh.admin_socket, config->admin_socket);
	fresh.file = config->file;
	fresh.argc = config->argc;
	fresh.argv = config->argv;
	config_clear(config);
	*config = fresh;
}
