/* Commands that decide which versions there are, and who gets them. */
#include "catalog.h"

#include "../commands.h"
#include "../command.h"

#define ROW_KEY(needs)                                                                                         \
	{                                                                                                      \
		OPTION_KEY, "key", 0, "FIELD=VALUE", true, needs, take_key,                                    \
			"a field of the version's key; workers that ask for another value are refused"         \
	}
#define ROW_SHARE_WITH(needs)                                                                                  \
	{                                                                                                      \
		OPTION_SHARE_WITH, "share-with", 0, "REF", false, needs, take_share_with,                      \
			"use the memory of version REF where the bytes are equal"                              \
	}
#define ROW_SEGMENT_BYTES(needs)                                                                               \
	{                                                                                                      \
		OPTION_SEGMENT_BYTES, "segment-bytes", 0, "SIZE", false, needs, take_segment_bytes,            \
			"the size of a segment, such as 2G: segments are shared whole or not at all"           \
	}

#define ROW_RANKS(needs)                                                                                       \
	{                                                                                                      \
		OPTION_RANKS, "ranks", 0, "N", false, needs, take_ranks,                                       \
			"cut a checkpoint into N ranks, by the plan of --cut"                                  \
	}
#define ROW_CUT(needs)                                                                                         \
	{                                                                                                      \
		OPTION_CUT, "cut", 0, "PLAN", false, needs, take_cut,                                          \
			"what each rank gets of which tensors: a file, or llama, mixtral or qwen"              \
	}

static const struct option_row load_options[] = {
	{OPTION_DEVICE, "device", 0, "DEVICE", true, NULL, take_device,
	 "make a replica on this device; if there are several ranks, the next rank"},
	{OPTION_ALIAS, "alias", 0, "ALIAS", false, NULL, take_alias, "then move this alias to the new version"},
	{OPTION_SWAP, "swap", 0, NULL, false, NULL, NULL, "the same as --alias current"},
	ROW_RANKS("cut"),
	ROW_CUT("ranks"),
	ROW_KEY(NULL),
	ROW_SHARE_WITH(NULL),
	ROW_SEGMENT_BYTES(NULL),
	{OPTION_FROM, "from", 0, "peers", false, NULL, take_from,
	 "SOURCE is MODEL@TAG of the first peer that has it"},
	{OPTION_EXPECT, "expect", 0, "SHA256", false, NULL, take_fingerprint,
	 "take nothing if a peer's version has another fingerprint"},
	{OPTION_WAIT, "wait", 0, NULL, false, NULL, NULL,
	 "show the progress, and end when the version is ready"},
	{OPTION_VERBOSE, "verbose", 'v', NULL, false, "wait", NULL, "then show what each phase took"},
	{OPTION_DRY_RUN, "dry-run", 0, NULL, false, NULL, NULL, "load nothing: only say whether it fits"},
	{0},
};

static const struct option_row verify_options[] = {
	ROW_DEVICE("only the replica on this device"),
	{OPTION_WAIT, "wait", 0, NULL, false, NULL, NULL, "wait for the result"},
	{0},
};

static const struct option_row save_options[] = {
	{OPTION_FORCE, "force", 0, NULL, false, NULL, NULL, "replace files with the same names"},
	{OPTION_NO_DESCRIBE, "no-describe", 0, NULL, false, NULL, NULL,
	 "only write the files: the version keeps the source that it has"},
	{0},
};

static const struct option_row swap_options[] = {
	{OPTION_EXPECT, "expect", 0, "ID", false, NULL, take_expect,
	 "only if the alias names this version id now (32 zeros: nothing)"},
	{OPTION_RETIRE_OLD, "retire-old", 0, NULL, false, NULL, NULL,
	 "retire the version that the alias named before"},
	{OPTION_REMOVE, "remove", 0, NULL, false, NULL, NULL, "remove the alias, in place of TO"},
	{OPTION_LOAD, "load", 0, "SOURCE", false, NULL, take_load,
	 "load SOURCE as the new version TO, move the alias, and retire the old one"},
	{OPTION_DEVICE, "device", 0, "DEVICE", true, "load", take_device, "as for load"},
	ROW_RANKS("load"),
	ROW_CUT("load"),
	ROW_KEY("load"),
	ROW_SHARE_WITH("load"),
	ROW_SEGMENT_BYTES("load"),
	{OPTION_KEEP_OLD, "keep-old", 0, NULL, false, "load", NULL, "don't retire the old version"},
	{0},
};

static const struct option_row retire_options[] = {
	{OPTION_ALIASES, "aliases", 0, NULL, false, NULL, NULL,
	 "remove the aliases that name the version, too"},
	{OPTION_WAIT, "wait", 0, "[SECONDS]", false, NULL, take_wait_seconds,
	 "wait until the version is freed, for at most SECONDS if they are given"},
	{OPTION_FORCE, "force", 0, NULL, false, NULL, NULL, "revoke its leases"},
	{OPTION_AFTER, "after", 0, "TIME", false, "force", take_after_time,
	 "how long the holders have until then, such as 30s (default: no time)"},
	{0},
};

static const struct option_row demote_options[] = {
	{OPTION_TO, "to", 0, "TIER", false, NULL, take_tier, "host (host memory) or files (no memory)"},
	{OPTION_WAIT, "wait", 0, NULL, false, NULL, NULL, "wait until the version lies there"},
	{0},
};

static const struct option_row promote_options[] = {
	{OPTION_WAIT, "wait", 0, NULL, false, NULL, NULL, "wait until the version lies on its devices"},
	{0},
};

static const struct option_row describe_options[] = {
	{OPTION_WAIT, "wait", 0, NULL, false, NULL, NULL, "wait until the files have been compared"},
	{0},
};

static const struct option_row kick_options[] = {
	{OPTION_PID, "pid", 0, "PID", false, NULL, take_pid, "all leases of this process, in place of LEASE"},
	{OPTION_UID, "uid", 0, "USER", false, NULL, take_uid,
	 "all leases of this user, by name or number, in place of LEASE"},
	{0},
};

static const struct option_row rm_options[] = {
	{OPTION_ALIASES, "aliases", 0, NULL, false, NULL, NULL,
	 "remove the aliases that name the version, too"},
	{0},
};

const struct command commands_operate[] = {
	{
		.name = "load",
		.words = {{"SOURCE", WORD_SOURCE, false}, {"MODEL@TAG", WORD_NEW, true}},
		.summary = "load a checkpoint as a new version",
		.about =
			"The first version of a model that becomes ready becomes current. A later one becomes current with --swap. "
			"SOURCE is a path, or hf:ORG/NAME[@REVISION] for a model that the hub's cache has; then MODEL@TAG may be "
			"left out.",
		.options = load_options,
		.example = "gpuwmctl load --wait hf:Qwen/Qwen3-8B\n"
			   "gpuwmctl load --wait --swap /models/llama-v2 llama@v2\n"
			   "gpuwmctl load --dry-run /models/llama-v3 llama@v3\n"
			   "gpuwmctl load --ranks 2 --cut llama /models/llama-v3 llama@v3\n"
			   "gpuwmctl load --wait peer://node7/llama@v2 llama@v2",
		.run = command_load,
	},
	{
		.name = "cancel",
		.words = {{"ID", WORD_JOB, false}},
		.summary = "end a queued or running job",
		.example = "gpuwmctl cancel 3",
		.run = command_cancel,
	},
	{
		.name = "verify",
		.words = {{"REF", WORD_REF, false}},
		.summary = "read a version's memory again and compare it with its digests",
		.options = verify_options,
		.example = "gpuwmctl verify llama --wait",
		.run = command_verify,
	},
	{
		.name = "save",
		.words = {{"REF", WORD_REF, false}, {"FOLDER", WORD_FILE, false}},
		.summary = "write a version as safetensors files, which then describe it",
		.about =
			"A version that files describe can be demoted to files, and comes back from them. FOLDER is made if it is "
			"not there; it lies below a root of gpuwmd's configuration.",
		.options = save_options,
		.example = "gpuwmctl save llama@v2-merged /models/llama-v2-merged",
		.run = command_save,
	},
	{
		.name = "swap",
		.words = {{"MODEL[@ALIAS]", WORD_ALIAS_OF, false}, {"TO", WORD_TARGET, true}},
		.summary = "move an alias (default: current) to another version",
		.about =
			"TO is a tag, an alias or a version id of the model; with --load, a new tag. Attached workers keep the version "
			"that they have.",
		.options = swap_options,
		.example = "gpuwmctl swap llama v3\n"
			   "gpuwmctl swap llama v4 --load /models/llama-v4",
		.run = command_swap,
	},
	{
		.name = "alias",
		.words = {{"REF", WORD_REF, false}, {"NAME", WORD_NAME, false}},
		.summary = "give REF an alias, or move that alias to REF",
		.about = "gpuwmctl swap MODEL@NAME --remove removes the alias.",
		.example = "gpuwmctl alias llama@v3 prod",
		.run = command_alias,
	},
	{
		.name = "rollback",
		.words = {{"MODEL[@ALIAS]", WORD_ALIAS_OF, false}, {"ALIAS", WORD_ALIAS, true}},
		.summary = "move an alias back to the version that it named before",
		.about =
			"ALIAS is current by default; it may also be a word of its own. A second rollback goes forward again.",
		.example = "gpuwmctl rollback llama\n"
			   "gpuwmctl rollback llama@prod",
		.run = command_rollback,
	},
	{
		.name = "pin",
		.words = {{"REF", WORD_REF, false}, {"NAME", WORD_PIN_NEW, false}},
		.summary = "keep a version until it is unpinned",
		.about = "NAME names the pin.",
		.example = "gpuwmctl pin llama@v2 nightly-tests",
		.run = command_pin,
	},
	{
		.name = "unpin",
		.words = {{"REF", WORD_REF, false}, {"NAME", WORD_PIN, false}},
		.summary = "remove the pin with that name",
		.example = "gpuwmctl unpin llama@v2 nightly-tests",
		.run = command_unpin,
	},
	{
		.name = "demote",
		.words = {{"REF", WORD_REF, false}},
		.summary = "move a version to host memory, or keep only its description",
		.about =
			"The version keeps its name, and a worker that attaches waits until gpuwmd has brought it back. It must have "
			"neither leases nor pins; for --to files it needs a source: gpuwmctl show prints it.",
		.options = demote_options,
		.required = "to",
		.example = "gpuwmctl demote llama@v1 --to host --wait\n"
			   "gpuwmctl demote llama@v1 --to files",
		.run = command_demote,
	},
	{
		.name = "promote",
		.words = {{"REF", WORD_REF, false}},
		.summary = "move a version back to its devices",
		.options = promote_options,
		.example = "gpuwmctl promote llama@v1 --wait",
		.run = command_promote,
	},
	{
		.name = "describe",
		.words = {{"REF", WORD_REF, false}, {"SOURCE", WORD_SOURCE, false}},
		.summary = "compare files with a version, which can be loaded from them then",
		.about =
			"SOURCE is as for load, and becomes the source of the version if it has every byte of it.",
		.options = describe_options,
		.example = "gpuwmctl describe llama@tuned /models/llama-tuned --wait",
		.run = command_describe,
	},
	{
		.name = "retire",
		.words = {{"REF", WORD_REF, false}},
		.summary = "give no new leases, and free the version after the last one",
		.about = "gpuwmd frees the version when its last lease and pin are gone.",
		.options = retire_options,
		.example = "gpuwmctl retire llama@v1 --wait 60\n"
			   "gpuwmctl retire llama@v1 --aliases --force --after 30s",
		.run = command_retire,
	},
	{
		.name = "rm",
		.words = {{"REF", WORD_REF, false}},
		.summary = "retire a version, or remove a failed one from the list",
		.about =
			"gpuwmd frees the version when its last lease and pin are gone; rm says who holds it. rm refuses a version "
			"that an alias other than previous names.",
		.options = rm_options,
		.example = "gpuwmctl rm llama@v2\n"
			   "gpuwmctl rm llama@v2 --aliases",
		.run = command_rm,
	},
	{
		.name = "kick",
		.words = {{"LEASE", WORD_LEASE, true}},
		.summary = "revoke a lease, or all leases of a process or a user",
		.options = kick_options,
		.example = "gpuwmctl kick 42\n"
			   "gpuwmctl kick --pid 12345",
		.socket = SOCKET_ADMIN,
		.run = command_kick,
	},
	{0},
};
