#include "peers.h"

#include "ini_file.h"
#include "../base/bytes.h"
#include "../base/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAKERS_MAX 1024

/* ---- values ---- */

static int check_path(const char *value, struct error *error)
{
	if (value[0] != '/')
		return error_set(error, -EINVAL, NULL, "is no absolute path");
	if (strlen(value) > PATH_BYTES_MAX || !utf8_valid(value))
		return error_set(error, -EINVAL, NULL, "is no UTF-8 of at most %d bytes", PATH_BYTES_MAX);
	return 0;
}

static int check_address(const char *value, struct error *error)
{
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;

	if (peer_address_parse(value, host, &port) < 0)
		return error_set(error, -EINVAL, NULL,
				 "is no host: HOST, HOST:PORT and [ADDRESS]:PORT are possible");
	return 0;
}

static int check_listen(const char *value, struct error *error)
{
	char host[PEER_HOST_BYTES_MAX + 1];
	struct in6_addr address;
	unsigned port;

	if (peer_listen_parse(value, host, &port) < 0 ||
	    (inet_pton(AF_INET, host, &address) != 1 && inet_pton(AF_INET6, host, &address) != 1))
		return error_set(error, -EINVAL, NULL,
				 "is no address in digits with a port, such as 0.0.0.0:%d or [::]:%d",
				 PEER_PORT, PEER_PORT);
	return 0;
}

static int check_name(const char *value, struct error *error)
{
	const char *name = strncmp(value, "*.", 2) == 0 ? value + 2 : value;

	if (!peer_is_host(name) || strchr(name, ':'))
		return error_set(
			error, -EINVAL, NULL,
			"is no name of a certificate: a name such as node7.example.org or *.example.org");
	return 0;
}

/* ---- the table ---- */

#define AT(member) offsetof(struct peer_settings, member)
static const struct {
	const char *key;
	int (*check)(const char *value, struct error *error);
	size_t offset;
	bool repeats;
} rows[] = {
	{"certificate", check_path, AT(certificate), false},
	{"key", check_path, AT(key), false},
	{"authority", check_path, AT(authority), false},
	{"secret", check_path, AT(secrets), true},
	{"names", check_name, AT(names), true},
	{"peer", check_address, AT(peers), true},
	{"dns", check_address, AT(dns), true},
	{"listen", check_listen, AT(listen), false},
};
#define ROWS (sizeof(rows) / sizeof(*rows))

static int no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "out of memory");
}

static int set_text(char **at, const char *value, struct error *error)
{
	char *copy = strdup(value);

	if (!copy)
		return no_memory(error);
	free(*at);
	*at = copy;
	return 0;
}

/* Once more is fine. */
static int add(struct peer_list *list, const char *value, struct error *error)
{
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->items[i], value) == 0)
			return 0;
	}
	if (list->count == PEER_LIST_MAX)
		return error_set(error, -EINVAL, NULL, "is one too many: at most %d are possible",
				 PEER_LIST_MAX);
	list->items[list->count] = strdup(value);
	if (!list->items[list->count])
		return no_memory(error);
	list->count++;
	return 0;
}

static int set_takers(struct peer_settings *settings, const char *value, struct error *error)
{
	uint64_t takers;

	if (bytes_parse(value, &takers) < 0 || takers < 1 || takers > TAKERS_MAX)
		return error_set(error, -EINVAL, NULL, "is no number from 1 to %d", TAKERS_MAX);
	settings->takers = takers;
	return 0;
}

static int set_encrypt(struct peer_settings *settings, const char *value, struct error *error)
{
	settings->clear = strcmp(value, "no") == 0;
	return settings->clear || strcmp(value, "yes") == 0
		       ? 0
		       : error_set(error, -EINVAL, NULL, "is neither yes nor no");
}

int peer_settings_set(struct peer_settings *settings, const char *key, const char *value, struct error *error)
{
	size_t i = 0;
	void *at;
	int r;

	if (strcmp(key, "takers") == 0)
		return set_takers(settings, value, error);
	if (strcmp(key, "encrypt") == 0)
		return set_encrypt(settings, value, error);
	while (i < ROWS && strcmp(rows[i].key, key) != 0)
		i++;
	if (i == ROWS)
		return error_set(error, -EINVAL, NULL, "there is no key \"%s\" in [peers]", key);
	r = rows[i].check(value, error);
	if (r < 0)
		return r;
	at = (char *)settings + rows[i].offset;
	return rows[i].repeats ? add(at, value, error) : set_text(at, value, error);
}

/* ---- the section ---- */

static int take_key(void *user, const char *section, const char *key, const char *value, struct error *error)
{
	struct error why;
	int r;

	if (strcmp(section, "peers") != 0)
		return 0;
	r = peer_settings_set(user, key, value, &why);
	return r < 0 ? error_set(error, r, why.detail, "[peers] %s = %.256s: %s", key, value, why.message) : 0;
}

int peer_settings_read(const char *path, struct peer_settings *ret, struct error *error)
{
	struct peer_settings settings = {0};
	const struct ini_file file = {.path = path,
				      .missing = "make the file, or name another one with --config",
				      .too_long = "make the value shorter",
				      .take = take_key,
				      .user = &settings};
	int r = ini_file_read(&file, error);

	if (r == 0)
		r = peer_settings_check(&settings, error);
	if (r < 0)
		peer_settings_clear(&settings);
	else
		*ret = settings;
	return r;
}

bool peer_settings_on(const struct peer_settings *settings)
{
	return settings->certificate || settings->secrets.count > 0;
}

int peer_settings_check(const struct peer_settings *settings, struct error *error)
{
	bool any = settings->certificate || settings->key || settings->authority;
	bool all = settings->certificate && settings->key && settings->authority;

	if (any && !all)
		return error_set(error, -EINVAL, "name all three files, or use `secret` instead of them",
				 "[peers] has %s: certificate, key and authority belong together",
				 !settings->certificate ? "no certificate"
				 : !settings->key       ? "a certificate without its key"
							: "no authority, which the certificates of peers are "
							  "checked against");
	if (any && settings->secrets.count > 0)
		return error_set(error, -EINVAL, "remove the certificate, or the secret",
				 "[peers] has both a certificate and a secret");
	if (settings->names.count > 0 && settings->secrets.count > 0)
		return error_set(error, -EINVAL, "use certificates, or remove `names`",
				 "[peers] has names, but a secret tells no names");
	return 0;
}

static void clear_list(struct peer_list *list)
{
	while (list->count > 0)
		free(list->items[--list->count]);
}

void peer_settings_clear(struct peer_settings *settings)
{
	free(settings->certificate);
	free(settings->key);
	free(settings->authority);
	free(settings->listen);
	clear_list(&settings->secrets);
	clear_list(&settings->names);
	clear_list(&settings->peers);
	clear_list(&settings->dns);
	*settings = (struct peer_settings){0};
}
