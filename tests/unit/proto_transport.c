/* How leases hand memory over: names, and handles as texts. */
#include "../../base/errors.h"
#include "../../proto/wire/transport.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(transport, a_handle_comes_back_from_its_text)
{
	struct ipc_handle handle, back;
	char text[IPC_HANDLE_TEXT];

	for (size_t i = 0; i < IPC_HANDLE_BYTES; i++)
		handle.bytes[i] = (uint8_t)(251 * i + 7);
	ipc_handle_format(&handle, text);
	cr_assert_eq(strlen(text), 2 * IPC_HANDLE_BYTES);
	cr_assert_eq(ipc_handle_parse(text, &back), 0);
	cr_expect_eq(memcmp(&handle, &back, sizeof(handle)), 0);
}

Test(transport, a_text_that_is_no_handle_is_refused)
{
	struct ipc_handle before, handle;
	char text[IPC_HANDLE_TEXT + 1];

	memset(&before, 7, sizeof(before));
	handle = before;
	memset(text, 'a', sizeof(text));
	text[IPC_HANDLE_TEXT] = 0;
	cr_expect_eq(ipc_handle_parse(text, &handle), -EINVAL);
	text[IPC_HANDLE_TEXT - 2] = 0;
	cr_expect_eq(ipc_handle_parse(text, &handle), -EINVAL);
	text[IPC_HANDLE_TEXT - 2] = 'A';
	text[IPC_HANDLE_TEXT - 1] = 0;
	cr_expect_eq(ipc_handle_parse(text, &handle), -EINVAL);
	cr_expect_eq(ipc_handle_parse("", &handle), -EINVAL);
	cr_expect_eq(memcmp(&before, &handle, sizeof(handle)), 0);
}

Test(transport, what_there_is_not_is_named)
{
	struct error error;

	cr_expect_eq(transport_check(NULL, &error), 0);
	cr_expect_eq(transport_check("fd", &error), 0);
	cr_expect_eq(transport_check("cuda_ipc", &error), 0);
	cr_expect_eq(transport_check("fabric", &error), -ENOTSUP);
	cr_expect(strstr(error.message, "fabric handles"));
	cr_expect_eq(transport_check("pigeon", &error), -ENOTSUP);
	cr_expect(strstr(error.message, "\"pigeon\"") && strstr(error.detail, "cuda_ipc"));
}
