#include "ask.h"

#include "exchange.h"
#include "link.h"

#include "../base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

struct nodes {
	struct ask_node *list;
	size_t count, more;
};

static void nodes_add(struct nodes *nodes, const char *host, unsigned port, const char *name, int why)
{
	struct ask_node *node = &nodes->list[nodes->count];

	for (size_t i = 0; i < nodes->count; i++) {
		if (nodes->list[i].port == port && strcmp(nodes->list[i].host, host) == 0)
			return;
	}
	if (nodes->count == ASK_NODES_MAX) {
		nodes->more++;
		return;
	}
	snprintf(node->host, sizeof(node->host), "%s", host);
	snprintf(node->name, sizeof(node->name), "%s", name);
	node->port = port;
	node->why = why;
	nodes->count++;
}

/* A name that leads nowhere stays a node, which says why. */
static void add_name(void *user, const struct lookup *lookup, const char *address)
{
	struct nodes *nodes = user;

	if (address)
		nodes_add(nodes, address, lookup->port, lookup->host, 0);
	else
		nodes_add(nodes, lookup->host, lookup->port, "", lookup->why);
}

int64_t ask_nodes(const struct peer_settings *settings, struct ask_node **ret, size_t *ret_more)
{
	struct nodes nodes = {.list = calloc(ASK_NODES_MAX + 1, sizeof(*nodes.list))};
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;

	if (!nodes.list)
		return -ENOMEM;
	for (size_t i = 0; i < settings->peers.count; i++) {
		if (peer_address_parse(settings->peers.items[i], host, &port) == 0)
			nodes_add(&nodes, host, port, "", 0);
	}
	if (lookup_all(&settings->dns, add_name, &nodes) < 0) {
		free(nodes.list);
		return -ENOMEM;
	}
	*ret = nodes.list;
	*ret_more = nodes.more;
	return (int64_t)nodes.count;
}

/* ---- one node ---- */

struct asking {
	const struct ask_node *node;
	struct peer_keys *keys;
	uint64_t timeout_ms;
	pthread_t thread;
	bool runs;
	json_t *answer;
};

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

static json_t *version_json(const struct peer_version *version)
{
	char id[VERSION_ID_TEXT], content[VERSION_ID_TEXT] = "", companion_of[VERSION_ID_TEXT] = "";
	json_t *aliases = json_array();

	for (uint32_t i = 0; i < version->aliases.count; i++)
		json_array_append_new(aliases, json_string(version->aliases.items[i]));
	hex128_format(version->version->bytes, id);
	if (version->content)
		hex128_format(version->content->bytes, content);
	if (version->companion_of)
		hex128_format(version->companion_of->bytes, companion_of);
	return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:s, s:o, s:o, s:o}", "version", id, "model",
			 version->model, "tag", version->tag, "aliases", aliases, "world",
			 (json_int_t)version->world, "bytes", (json_int_t)version->bytes, "tier", version->tier,
			 "content", text_or_null(content), "fingerprint", text_or_null(version->fingerprint),
			 "companion_of", text_or_null(companion_of));
}

static int read_page(const struct peer_message *page, json_t *versions, uint64_t *at, struct error *error)
{
	struct peer_version version;
	const msgpack_object *items;
	struct fields f;
	uint32_t count;
	int r = 0;

	fields_of(&f, page->message.body);
	items = fields_array(&f, "versions", &count);
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = record_read_map(&peer_version_record, &items[i], page->message.zone, &version, error);
		if (r == 0)
			json_array_append_new(versions, version_json(&version));
	}
	*at += count;
	if (r == 0 && f.error.code < 0) {
		*error = f.error;
		r = error->code;
	}
	/* A page without versions would be asked for again and again. */
	return r == 0 && count == 0 ? 1 : r;
}

static int ask_list(struct link *link, json_t *versions, uint64_t deadline_ms, struct error *error)
{
	struct peer_list_result result;
	struct peer_message page;
	uint64_t at = 0;
	int r;

	do {
		if (at > VERSIONS_MAX)
			return error_set(error, -EPROTO, NULL,
					 "%s tells %" PRIu64 " versions and more; a gpuwmd has %d at most",
					 link_peer(link), at, VERSIONS_MAX);
		if (clock_steady_ms() >= deadline_ms)
			return error_set(error, -ETIMEDOUT, NULL, "%s tells its versions too slowly",
					 link_peer(link));
		r = peer_call(link, &form_peer_list, &(struct peer_list_params){at}, &result, &page, error);
		if (r < 0)
			return r;
		r = read_page(&page, versions, &at, error);
		peer_message_clear(&page);
	} while (r == 0 && at < result.total);
	return r < 0 ? r : 0;
}

static int talk(struct link *link, struct asking *asking, uint64_t deadline_ms, struct error *error)
{
	json_t *versions = json_array();
	struct peer_hello_result hello;
	struct peer_message message;
	char ledger[VERSION_ID_TEXT] = "";
	int r = peer_greet(link, "gpuwm-peer " GPUWM_VERSION, &hello, &message, error);

	if (r == 0 && hello.ledger)
		hex128_format(hello.ledger->bytes, ledger);
	if (r == 0) {
		json_object_set_new(asking->answer, "node", json_string(hello.node));
		json_object_set_new(asking->answer, "program", json_string(hello.program));
		json_object_set_new(asking->answer, "ledger", text_or_null(ledger));
		peer_message_clear(&message);
		r = ask_list(link, versions, deadline_ms, error);
	}
	json_object_set_new(asking->answer, "versions", versions);
	return r;
}

static int ask_node(struct asking *asking, struct error *error)
{
	const struct ask_node *node = asking->node;
	const struct link_target target = {node->host, node->port, node->name[0] ? node->name : NULL};
	uint64_t deadline_ms = clock_steady_ms() + asking->timeout_ms;
	struct link *link;
	int r;

	if (node->why != 0)
		return error_set(error, -ENOENT, NULL, "the name %s has no address: %s", node->host,
				 gai_strerror(node->why));
	r = link_connect(asking->keys, &target, asking->timeout_ms, &link, error);
	if (r < 0)
		return r;
	link_limit(link, deadline_ms);
	r = talk(link, asking, deadline_ms, error);
	link_close(link);
	return r;
}

static void *ask_run(void *user)
{
	struct asking *asking = user;
	struct error error;
	int r = ask_node(asking, &error);

	if (r < 0)
		json_object_set_new(asking->answer, "error",
				    json_pack("{s:s, s:s, s:s}", "code", error_name(r), "message",
					      error.message, "detail", error.detail));
	return NULL;
}

/* ---- all of them ---- */

static json_t *ask_all(struct peer_keys *keys, const struct ask_node *list, size_t count, uint64_t timeout_ms)
{
	struct asking *asking = calloc(count + 1, sizeof(*asking));
	json_t *nodes = json_array();

	for (size_t i = 0; asking && i < count; i++) {
		asking[i] = (struct asking){.node = &list[i], .keys = keys, .timeout_ms = timeout_ms};
		asking[i].answer = json_pack("{s:s, s:i}", "host", list[i].host, "port", (int)list[i].port);
		asking[i].runs = pthread_create(&asking[i].thread, NULL, ask_run, &asking[i]) == 0;
		if (!asking[i].runs)
			ask_run(&asking[i]);
	}
	for (size_t i = 0; asking && i < count; i++) {
		if (asking[i].runs)
			pthread_join(asking[i].thread, NULL);
		json_array_append_new(nodes, asking[i].answer);
	}
	free(asking);
	return nodes;
}

static int print(struct peer_keys *keys, const struct peer_settings *settings, uint64_t timeout_ms,
		 struct error *error)
{
	struct ask_node *list;
	size_t more;
	int64_t count = ask_nodes(settings, &list, &more);
	json_t *answer;

	if (count < 0)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	answer = json_pack("{s:o, s:I}", "nodes", ask_all(keys, list, (size_t)count, timeout_ms), "left_out",
			   (json_int_t)more);
	json_dumpf(answer, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(answer);
	free(list);
	return 0;
}

/* A list is whole, or there is none: abort_line_begin says why. */
static void *memory_or_abort(size_t bytes)
{
	void *memory = malloc(bytes);

	if (!memory)
		abort();
	return memory;
}

int ask_print(const char *config, uint64_t timeout_ms, struct error *error)
{
	struct peer_settings settings;
	struct peer_keys *keys;
	int r = peer_settings_read(config, &settings, error);

	if (r < 0)
		return r;
	json_set_alloc_funcs(memory_or_abort, free);
	r = peer_keys_read(&settings, &keys, error);
	if (r == 0) {
		r = print(keys, &settings, timeout_ms, error);
		peer_keys_release(keys);
	}
	peer_settings_clear(&settings);
	return r;
}
