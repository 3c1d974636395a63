/* gpuwmctl's exit statuses. */
#include "explanations.h"

#include <stddef.h>

const struct explanation explanations_of_statuses[] = {
	{"0", "ok", "gpuwmctl did what it was asked for.", "Nothing."},
	{"1", "failed", "Something went wrong that no other status names: the message says what.",
	 "Read the message and the line below it. gpuwmctl logs shows what gpuwmd says about it."},
	{"2", "wrong usage, which includes a word that can't be a name",
	 "An option or a word is missing, unknown, given twice or misspelled. Nothing was done.",
	 "gpuwmctl help COMMAND shows the usage, the options and an example."},
	{"3", "gpuwmd is not reachable",
	 "gpuwmd does not run, or listens at another socket, or the folder of the socket is not mounted in this container.",
	 "Start gpuwmd, or name its socket with --socket or GPUWM_SOCKET. gpuwmctl logs shows why gpuwmd ended."},
	{"4", "not found: a model, version, job, file or device",
	 "The name is misspelled, the version is freed, or this user may not see it. For wait: it can't come any more.",
	 "gpuwmctl ls, jobs and status list what there is for this user."},
	{"5", "in use, or the name is taken",
	 "An alias or a pin keeps the version, a tag exists already, or somebody else has moved the alias meanwhile.",
	 "The message names what keeps it: move or remove that, or take another name."},
	{"6", "no permission",
	 "The user is no operator, has no right to the model, or the file lies outside of gpuwmd's roots.",
	 "The message names the group to join or the roots. Rules are in gpuwmd.conf(5)."},
	{"7", "timed out", "What the command waited for did not happen within the time that was given.",
	 "Wait longer, or look at what holds it up: gpuwmctl jobs, gpuwmctl ps."},
	{"8", "no room, or a limit is reached",
	 "The device's budget or free memory does not suffice, or a limit of the user or of gpuwmd is reached.",
	 "Retire a version, raise the budget or the limit that the message names. gpuwmctl load --dry-run shows what fits."},
	{"9",
	 "damaged: a file that is truncated or breaks a rule of its format, or a version that fails its check",
	 "A download was cut off, the file is another one than it says, or memory has changed.",
	 "Get the file again. Load a damaged version anew, and retire the old one."},
	{0},
};
