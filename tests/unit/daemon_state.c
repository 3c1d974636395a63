#include "daemon/state.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static struct state *make(void)
{
	struct state *state = NULL;

	cr_assert_eq(state_new(&state), 0);
	return state;
}

static void expect_text(const struct state *state, const char *text)
{
	uint32_t format = 0;
	size_t bytes = 0;
	void *data = NULL;

	cr_assert_eq(state_read(state, &data, &bytes, &format), 0);
	cr_expect_eq(format, STATE_FORMAT);
	cr_expect_eq(bytes, strlen(text));
	cr_expect_eq(memcmp(data, text, bytes), 0);
	free(data);
}

static struct state *reopen(const struct state *state)
{
	struct error error = {0};
	struct state *again = NULL;

	cr_assert_eq(state_open(fcntl(state_fd(state), F_DUPFD_CLOEXEC, 3), &again, &error), 0, "%s",
		     error.message);
	return again;
}

Test(state, is_read_back_as_it_was_written_last)
{
	static const char *const texts[] = {"one", "a second one", "", "3"};
	struct state *state = make(), *again;
	uint32_t format;
	size_t bytes;
	void *data;

	cr_expect_eq(state_read(state, &data, &bytes, &format), -ENOENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		cr_assert_eq(state_write(state, texts[i], strlen(texts[i])), 0);
		expect_text(state, texts[i]);
		again = reopen(state);
		expect_text(again, texts[i]);
		state_free(state);
		state = again;
	}
	state_free(state);
	cr_expect_null(state_free(NULL));
}
