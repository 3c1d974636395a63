/* handles: a copy of a version by legacy CUDA IPC, for processes that open it by hand. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "output.h"
#include "table.h"

#include "../../proto/wire/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *device;
static struct option_number rank;

/* What can be printed: descriptors can't. */
static int take_transport(const struct option_row *row, const char *text, void *data, struct error *error)
{
	(void)data;
	if (strcmp(text, TRANSPORT_CUDA_IPC) == 0)
		return 0;
	if (strcmp(text, TRANSPORT_FD) == 0)
		return error_set(error, -EINVAL,
				 "a process gets descriptors with gpuwm_attach (C) or gpuwm.attach (Python)",
				 "--%s fd: descriptors can't be printed", row->name);
	transport_check(text, error);
	return error_set(error, -EINVAL, "--transport takes cuda_ipc", "%s", error->message);
}

static const struct option_row handles_options[] = {
	ROW_DEVICE(device, "the replica on this device; needed if there are several"),
	ROW_RANK(rank),
	{"transport", "how the memory is handed out: by legacy CUDA IPC", "cuda_ipc", take_transport,
	 .into = NULL},
	{0},
};

/* How often the command looks whether it still has the lease: whoever opened the handles reads on meanwhile. */
#define LOOK_SECONDS 1

/* ---- what is printed ---------------------------------------------------- */

static json_t *segments_json(const struct gpuwm_handles *handles)
{
	json_t *segments = json_array();
	unsigned char handle[GPUWM_IPC_HANDLE_BYTES];
	char text[2 * GPUWM_IPC_HANDLE_BYTES + 1];
	uint64_t bytes;

	for (uint32_t i = 0; gpuwm_handles_ipc_segment(handles, i, handle, &bytes) == 0; i++)
		json_array_append_new(segments, json_pack("{s:i, s:I, s:s}", "segment", (int)i, "bytes",
							  (json_int_t)bytes, "handle",
							  hex_text(handle, sizeof(handle), text)));
	return segments;
}

static json_t *numbers_json(const struct gpuwm_tensor *tensor, bool strides)
{
	json_t *numbers = json_array();

	for (uint32_t i = 0; i < tensor->ndim; i++)
		json_array_append_new(
			numbers, json_integer(strides ? tensor->strides[i] : (json_int_t)tensor->shape[i]));
	return numbers;
}

static json_t *tensors_json(const struct gpuwm_handles *handles)
{
	json_t *tensors = json_array();
	struct gpuwm_tensor tensor;

	for (uint64_t i = 0; gpuwm_handles_tensor_at(handles, i, &tensor) == 0; i++)
		json_array_append_new(
			tensors,
			json_pack("{s:s, s:s?, s:o, s:o, s:I, s:i, s:I}", "name", tensor.name, "dtype",
				  gpuwm_dtype_name(tensor.dtype), "shape", numbers_json(&tensor, false),
				  "strides", numbers_json(&tensor, true), "bytes", (json_int_t)tensor.bytes,
				  "segment", (int)tensor.segment, "offset", (json_int_t)tensor.offset));
	return tensors;
}

static json_t *copy_json(const struct gpuwm_handles *handles)
{
	const struct gpuwm_version_info *info = gpuwm_handles_version(handles);
	unsigned char event[GPUWM_IPC_HANDLE_BYTES];
	char text[2 * GPUWM_IPC_HANDLE_BYTES + 1];
	uint64_t holder;

	if (gpuwm_handles_ipc_event(handles, event, &holder) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:s, s:I, s:o, s:o}", "version", info->id,
			 "model", info->model, "tag", info->tag, "device", info->device, "rank",
			 (int)info->rank, "world", (int)info->world, "bytes", (json_int_t)info->bytes,
			 "transport", "cuda_ipc", "event", hex_text(event, sizeof(event), text), "holder",
			 (json_int_t)holder, "segments", segments_json(handles), "tensors",
			 tensors_json(handles));
}

static int copy_print(const json_t *copy)
{
	static const struct column segments[] = {
		{">SEGMENT", cell_number, "segment"},
		{">SIZE", cell_size, "bytes"},
		{"+HANDLE", cell_text, "handle"},
		{0},
	};
	char size[SHORT_TEXT];
	int code;

	say("%s@%s on %s, rank %" PRIu64 " of %" PRIu64 ": a copy of %s", answer_text(copy, "model"),
	    answer_text(copy, "tag"), answer_text(copy, "device"), answer_number(copy, "rank"),
	    answer_number(copy, "world"), size_text(answer_number(copy, "bytes"), size));
	say("gpuwm-loader (pid %" PRIu64 ") holds it; the copy dies with that process",
	    answer_number(copy, "holder"));
	code = table_of(segments, json_object_get(copy, "segments"));
	say("-o json has the handles, the event, and the segment and offset of each tensor");
	say("the copy stays as long as this command runs; Ctrl-C gives it back");
	return code;
}

/* ---- waiting ------------------------------------------------------------ */

/* Shows the handles, and keeps the lease until somebody ends this command, or the lease is lost. */
static int handles_hold(const struct gpuwm_handles *handles)
{
	static const struct view view = {copy_print, NULL, NULL, NULL};
	const struct timespec look = {.tv_sec = LOOK_SECONDS};
	json_t *copy = copy_json(handles);
	sigset_t ends;
	int code;

	if (!copy)
		return exit_with_error();
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	code = result_show(copy, &view);
	if (code == EXIT_DONE && fflush(stdout) != 0)
		code = exit_with(EXIT_FAILED, NULL, "the handles can't be printed: %s", strerror(errno));
	while (code == EXIT_DONE && sigtimedwait(&ends, NULL, &look) < 0)
		if (gpuwm_handles_check(handles) < 0)
			code = exit_with_error();
	return code;
}

static int handles_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_handles *handles;
	int code = EXIT_DONE;

	if (device)
		code = device_resolve(client, device, &options.device);
	if (code != EXIT_DONE)
		return code;
	options.rank = (uint32_t)rank.value;
	options.transport = GPUWM_TRANSPORT_CUDA_IPC;
	if (gpuwm_get_handles(client, arguments->positional[0], &options, &handles) < 0)
		return exit_with_error();
	code = handles_hold(handles);
	gpuwm_handles_release(handles);
	return code;
}

const struct command command_handles = {
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
	.run = handles_run,
};
