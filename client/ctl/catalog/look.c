/* Commands that show what gpuwmd holds and does. */
#include "catalog.h"

#include "../commands.h"
#include "../command.h"

static const struct option_row show_options[] = {
	ROW_DEVICE("the replica on this device; needed if there are several"),
	{OPTION_RANK, "rank", 0, "N", false, NULL, take_rank, "the part of this rank (default 0)"},
	{0},
};

static const struct option_row handles_options[] = {
	ROW_DEVICE("the replica on this device; needed if there are several"),
	{OPTION_RANK, "rank", 0, "N", false, NULL, take_rank, "the part of this rank (default 0)"},
	{OPTION_TRANSPORT, "transport", 0, "cuda_ipc", false, NULL, take_transport,
	 "how the memory is handed out: by legacy CUDA IPC"},
	{0},
};

static const struct option_row regions_options[] = {
	{OPTION_REMOVE, "remove", 0, NULL, false, NULL, NULL, "end REGION, whoever uses it"},
	ROW_WATCH,
	{0},
};

static const struct option_row events_options[] = {
	{OPTION_AFTER, "after", 0, "SEQ", false, NULL, take_after_event,
	 "first print the events after number SEQ that gpuwmd still keeps"},
	{OPTION_COUNT, "count", 0, "N", false, NULL, take_count, "end after N events"},
	{0},
};

static const struct option_row top_options[] = {
	{OPTION_ONCE, "once", 'b', NULL, false, NULL, NULL, "print one picture as text, and end"},
	{0},
};

static const struct option_row watch_options[] = {
	ROW_WATCH,
	{0},
};

static const struct option_row status_options[] = {
	{OPTION_VERBOSE, "verbose", 'v', NULL, false, NULL, NULL, "the limits, too"},
	ROW_WATCH,
	{0},
};

static const struct option_row ls_options[] = {
	{OPTION_PEERS, "peers", 0, NULL, false, NULL, NULL,
	 "the versions of other nodes: those of [peers] in gpuwmd.conf"},
	{OPTION_CONFIG, "config", 0, "FILE", false, "peers", take_config,
	 "gpuwmd.conf (default: that of the gpuwmd that runs)"},
	ROW_WATCH,
	{0},
};

static const struct option_row wait_options[] = {
	{OPTION_FOR, "for", 0, "ready|freed", false, NULL, take_for, "what to wait for"},
	{OPTION_TIMEOUT, "timeout", 0, "TIME", false, NULL, take_timeout,
	 "give up after this time, such as 30s (default: never)"},
	{0},
};

const struct command commands_look[] = {
	{
		.name = "status",
		.summary = "show what gpuwmd holds, its devices and its limits",
		.options = status_options,
		.example = "gpuwmctl status\n"
			   "gpuwmctl status --verbose",
		.run = command_status,
	},
	{
		.name = "ls",
		.also = "list",
		.words = {{"MODEL", WORD_MODEL, true}},
		.summary = "list versions, or those of one model",
		.about = "For each version: aliases, state, devices, size, leases, pins, owner and age.",
		.options = ls_options,
		.example = "gpuwmctl ls llama\ngpuwmctl ls --peers",
		.run = command_ls,
	},
	{
		.name = "show",
		.words = {{"REF", WORD_REF, false}},
		.summary = "show one version: its tensors, metadata and files",
		.options = show_options,
		.example = "gpuwmctl show llama@v2 --device cuda:0",
		.run = command_show,
	},
	{
		.name = "handles",
		.words = {{"REF", WORD_REF, false}},
		.summary = "print handles of CUDA IPC, which other programs open",
		.about =
			"gpuwmd makes a copy of the version's part, which any program on this host can open that sees the GPU. "
			"The copy stays as long as the command runs.",
		.options = handles_options,
		.required = "transport",
		.example = "gpuwmctl handles llama@v2 --transport cuda_ipc -o json",
		.no_names = true,
		.run = command_handles,
	},
	{
		.name = "regions",
		.words = {{"REGION", WORD_REGION, true}},
		.summary = "list regions: memory that stays writable",
		.about =
			"For each region: kind, device, size, and what of it is in use. With REGION also its users, and its oldest "
			"chunks, its blocks by state, or who holds it.",
		.options = regions_options,
		.example = "gpuwmctl regions kv-cache",
		.run = command_regions,
	},
	{
		.name = "ps",
		.also = "leases",
		.summary = "list leases: which process holds which version",
		.options = watch_options,
		.example = "gpuwmctl ps",
		.run = command_ps,
	},
	{
		.name = "clients",
		.summary = "list sessions: who is connected",
		.options = watch_options,
		.example = "gpuwmctl clients",
		.run = command_clients,
	},
	{
		.name = "jobs",
		.words = {{"ID", WORD_JOB, true}},
		.summary = "list loads, checks and verifies: phases, progress, errors",
		.about = "With ID: that job, with each of its phases, and the loader's notes.",
		.options = watch_options,
		.example = "gpuwmctl jobs 3",
		.run = command_jobs,
	},
	{
		.name = "wait",
		.words = {{"REF", WORD_REF, false}},
		.summary = "wait until a version is ready, or freed",
		.about =
			"A tag or an alias that is not there yet may come. If REF can't become ready any more, the exit status is 4, "
			"and 7 if the time ran out.",
		.options = wait_options,
		.required = "for",
		.example = "gpuwmctl wait llama@v3 --for ready --timeout 5m\n"
			   "gpuwmctl wait llama@v2 --for freed",
		.run = command_wait,
	},
	{
		.name = "events",
		.summary = "print events as they happen",
		.options = events_options,
		.example = "gpuwmctl events --after 0 --count 10",
		.no_names = true,
		.run = command_events,
	},
	{
		.name = "top",
		.summary = "watch devices, versions, workers and jobs live",
		.about = "The keys: q quits, h shows the others. If stdout is no terminal: the same as --once.",
		.options = top_options,
		.example = "gpuwmctl top",
		.socket = SOCKET_NONE,
		.no_names = true,
		.run = command_top,
	},
	{
		.name = "ping",
		.summary = "measure one round trip to gpuwmd",
		.example = "gpuwmctl ping",
		.run = command_ping,
	},
	{0},
};
