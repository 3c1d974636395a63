#include "storing.h"

struct manager manager;

void storing_begin(const char *limit)
{
	struct inherited left = inherited_none;
	struct error error;

	manager_start(&manager, limit);
	server_open();
	cr_assert_eq(keeping_begin(server->keeping, &left, &error), 0, "%s", error.message);
	cr_assert(keeping_stores(server->keeping));
}

void storing_end(void)
{
	server = server_free(server);
	config_clear(&config);
	manager_stop(&manager);
}

struct version *being_stored(const char *tag, uint32_t segments)
{
	struct version *version = ready_with("m", tag, segments);

	cr_assert_eq(version->state, VERSION_CHECKING);
	cr_assert(version->storing);
	return version;
}

struct version *stored(const char *tag)
{
	struct version *version = being_stored(tag, 2);

	TURN_UNTIL(version->state == VERSION_READY);
	return version;
}

void withdraw(struct version *version)
{
	struct error error;

	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0, "%s", error.message);
}

void silence(void)
{
	manager.silent = true;
	server->config->store_confirm_ms = 200;
}
