/* kick: leases that an operator takes from their holders. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct option_number pid, uid;

static const struct option_row kick_options[] = {
	{"pid", "all leases of this process, in place of LEASE", "PID", take_number, .into = &pid,
	 .most = INT32_MAX, .kind = WORD_PID},
	{"uid", "all leases of this user, by name or number, in place of LEASE", "USER", take_user,
	 .into = &uid, .most = UINT32_MAX - 1, .kind = WORD_UID},
	{0},
};

static int kick_print(const json_t *answer)
{
	static const struct column columns[] = {
		{">LEASE", cell_lease, "lease"},   {"VERSION", cell_name, NULL},
		{"DEVICE", cell_device, "device"}, {">PID", cell_number, "pid"},
		{">UID", cell_number, "uid"},      {"COMMAND", cell_text, "command"},
		{"+ID", cell_text, "version"},     {0},
	};
	const json_t *leases = json_object_get(answer, "leases");
	const size_t count = json_array_size(leases);

	say("revoked: %zu lease%s; gpuwmctl ps lists those whose process may still map the memory", count,
	    count == 1 ? "" : "s");
	return table_of(columns, leases);
}

/* A number, or START.NUMBER as cell_lease writes it. */
static bool lease_parse(const char *text, uint64_t *ret_lease)
{
	const char *number = strchr(text, '.');
	uint64_t start = 0;
	char *end;

	errno = 0;
	if (number) {
		start = strtoull(text, &end, 10);
		if (!isdigit((unsigned char)text[0]) || end != number || start > UINT32_MAX)
			return false;
		text = number + 1;
	}
	*ret_lease = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end || errno || (number && *ret_lease > UINT32_MAX))
		return false;
	*ret_lease |= start << 32;
	return true;
}

/* What is to be kicked: EXIT_DONE, or EXIT_USAGE after printing why it can't be told. */
static int kick_target(const struct arguments *arguments, enum gpuwm_kick_by *ret_by, uint64_t *ret_number)
{
	const char *lease = arguments->positional[0];

	if ((lease != NULL) + pid.given + uid.given != 1)
		return exit_with(EXIT_USAGE, "gpuwmctl ps lists leases",
				 "kick takes one of LEASE, --pid and --uid");
	*ret_by = lease ? GPUWM_KICK_LEASE : pid.given ? GPUWM_KICK_PID : GPUWM_KICK_UID;
	*ret_number = pid.given ? pid.value : uid.value;
	if (!lease)
		return EXIT_DONE;
	if (!lease_parse(lease, ret_number))
		return exit_with(EXIT_USAGE, "gpuwmctl ps lists leases", "'%s' is not the number of a lease",
				 lease);
	return EXIT_DONE;
}

static int kick_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {kick_print, cell_number, "lease", "leases"};
	enum gpuwm_kick_by by = GPUWM_KICK_LEASE;
	uint64_t number = 0;
	json_t *answer;
	char *text;
	int code = kick_target(arguments, &by, &number);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_kick(client, by, number, &text) < 0)
		return exit_with_error();
	answer = json_loads(text, 0, NULL);
	free(text);
	return result_show(answer, &view);
}

const struct command command_kick = {
	.name = "kick",
	.words = {{"LEASE", WORD_LEASE, true}},
	.summary = "revoke a lease, or all leases of a process or a user",
	.options = kick_options,
	.example = "gpuwmctl kick 42\n"
		   "gpuwmctl kick --pid 12345",
	.socket = SOCKET_ADMIN,
	.run = kick_run,
};
