#include "groups.h"

#include "program.h"

#define QUICK_MS 10000 /* what takes milliseconds where nothing hangs */

const struct check_group groups[] = {
	{"machine", QUICK_MS, check_machine},
	{"kernel", QUICK_MS, check_kernel},
	{"driver", PROBE_MS + QUICK_MS, check_driver},
	{"device nodes", QUICK_MS, check_nodes},
	{"users", QUICK_MS, check_users},
	/* Before what connects: it says why nobody answers. systemctl may hang twice. */
	{"service", 2 * QUICK_MS, check_service},
	{"sockets", QUICK_MS, check_sockets},
	{"models", QUICK_MS, check_roots},
	{"limits", QUICK_MS, check_limits},
	{"container", QUICK_MS, check_container},
	{"room", QUICK_MS, check_room},
	{"descriptions", QUICK_MS, check_descriptions},
	{"leftovers", QUICK_MS, check_leftovers},
	{"peers", 2 * QUICK_MS, check_peers},
	{"python", QUICK_MS, check_python},
};
const size_t group_count = sizeof(groups) / sizeof(groups[0]);
