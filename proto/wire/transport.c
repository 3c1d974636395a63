#include "transport.h"

#include "../../base/errors.h"

#include <errno.h>
#include <string.h>

void ipc_handle_format(const struct ipc_handle *handle, char text[IPC_HANDLE_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < IPC_HANDLE_BYTES; i++) {
		text[2 * i] = digits[handle->bytes[i] >> 4];
		text[2 * i + 1] = digits[handle->bytes[i] & 15];
	}
	text[IPC_HANDLE_TEXT - 1] = 0;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ipc_handle_parse(const char *text, struct ipc_handle *ret)
{
	struct ipc_handle handle;

	if (strlen(text) != IPC_HANDLE_TEXT - 1)
		return -EINVAL;
	for (size_t i = 0; i < IPC_HANDLE_BYTES; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		handle.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret = handle;
	return 0;
}

static int check_segment(const void *value, struct error *error)
{
	const struct ipc_segment *segment = value;
	struct ipc_handle unused;

	if (ipc_handle_parse(segment->handle, &unused) == 0)
		return 0;
	return error_set(error, -EINVAL, NULL, "\"handle\" is not %d bytes as hexadecimal digits",
			 IPC_HANDLE_BYTES);
}

static const struct record_field ipc_segment_rows[] = {
	FIELD_TEXT(struct ipc_segment, handle, IPC_HANDLE_TEXT - 1),
	FIELD_U64(struct ipc_segment, bytes),
};
const struct record ipc_segment_record = {RECORD(struct ipc_segment, ipc_segment_rows), .check = check_segment};

int transport_check(const char *transport, struct error *error)
{
	if (!transport || strcmp(transport, TRANSPORT_FD) == 0 || strcmp(transport, TRANSPORT_CUDA_IPC) == 0)
		return 0;
	if (strcmp(transport, "fabric") == 0)
		return error_set(
			error, -ENOTSUP,
			"take \"" TRANSPORT_FD "\" or \"" TRANSPORT_CUDA_IPC
			"\"; gpuwmctl doctor says whether this driver makes fabric handles",
			"gpuwmd hands out no fabric handles: its memory is made with descriptors, and the "
			"driver exports it in no other form");
	return error_set(error, -ENOTSUP, "there are \"" TRANSPORT_FD "\" and \"" TRANSPORT_CUDA_IPC "\"",
			 "there is no transport \"%s\"", transport);
}
