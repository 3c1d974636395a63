/* What a loader tells while it works on a job. */
#include "../../loader/work.h"
#include "../../proto/wire/message.h"
#include "../../proto/wire/packet.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct work work = {.phase = "copying", .done = 3, .total = 7};
static int gpuwmd = -1;

static void start(void)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	gpuwmd = pair[0];
	cr_assert_eq(connection_new(pair[1], &work.connection), 0);
}

static void finish(void)
{
	connection_free(work.connection);
	close(gpuwmd);
}

TestSuite(work, .init = start, .fini = finish, .timeout = 120);

/* What comes next is progress, with that note. */
static void expect_note(const char *note)
{
	static uint8_t buffer[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = buffer};
	char text[2 * TEXT_BYTES_MAX];
	struct message message;
	const char *why = "";
	struct fields f;

	cr_assert_eq(packet_receive(gpuwmd, true, &packet), 1);
	cr_assert_eq(message_read(packet.data, packet.bytes, &message, &why), 0, "%s", why);
	cr_expect_str_eq(message.method, "loader_progress");
	fields_of(&f, message.body);
	fields_text(&f, "phase", text, sizeof(text));
	cr_expect_str_eq(text, "copying");
	cr_expect_eq(fields_u64(&f, "done"), 3);
	cr_expect_eq(fields_u64(&f, "total"), 7);
	cr_expect_eq(fields_have(&f, "note"), note != NULL);
	if (note) {
		fields_text(&f, "note", text, sizeof(text));
		cr_expect_str_eq(text, note);
	}
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
	message_clear(&message);
	packet_drop(&packet);
}

Test(work, progress_has_no_note_of_its_own)
{
	cr_assert_eq(work_advance(0, &work), 0);
	expect_note(NULL);
}

Test(work, a_note_goes_with_the_progress)
{
	work_note(&work, "read %d bytes of %s directly", 12, "/m");
	expect_note("read 12 bytes of /m directly");
}

Test(work, a_note_is_one_line_of_utf8)
{
	work_note(&work, "no O_DIRECT on /a\n\xff");
	expect_note("no O_DIRECT on /a??");
}

Test(work, a_long_note_is_cut)
{
	char path[3 * TEXT_BYTES_MAX], cut[TEXT_BYTES_MAX + 1];

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	memcpy(cut, path, TEXT_BYTES_MAX);
	cut[TEXT_BYTES_MAX] = '\0';
	work_note(&work, "%s", path);
	expect_note(cut);
}
