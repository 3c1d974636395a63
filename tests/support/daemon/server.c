#include "server.h"

#include "daemon/work/jobs/job_load.h"

#include <sys/stat.h>

/* More than a test makes: for each event that is kept, four. */
#define ENDS_MAX (8 * EVENTS_KEPT_MAX)

struct config config;
struct server *server;
int fds_before;

/* What came last. */
static uint8_t buffer[PACKET_BYTES_MAX + 1];
struct packet packet = {.data = buffer};
struct message message;

/* The ends of connections that tests got. A number may be in use for another file by the time that server_close comes. */
static struct {
	int fd;
	ino_t inode;
} ends[ENDS_MAX];
static unsigned end_count;

static ino_t inode_of(int fd)
{
	struct stat file;

	return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

static void ends_close(void)
{
	for (; end_count > 0; end_count--)
		if (inode_of(ends[end_count - 1].fd) == ends[end_count - 1].inode)
			close(ends[end_count - 1].fd);
}

void server_open(void)
{
	static char *argv[] = {"gpuwmd", NULL}; /* a reload reads it */
	struct device host = {
		.id = DEVICE_HOST, .kind = &kind_host, .name = "host", .total = GIB(1), .granularity = 4096};
	struct error error;
	uv_loop_t first;

	/* libuv keeps a pipe for signals from its first loop on. */
	cr_assert_eq(uv_loop_init(&first) | uv_loop_close(&first), 0);
	fds_before = fd_count();
	log_level_set(LOG_LEVEL_ERROR);
	config_init(&config);
	config.argc = 1;
	config.argv = argv;
	cr_assert_eq(server_new(&config, &server, &error), 0, "%s", error.message);
	server->judge =
		(struct config_judge){.worker_passed = true, .admin_passed = true}; /* it makes no sockets */
	cr_assert_eq(device_table_report(&server->ledger.devices, &host, 1), 0);
}

void forget(void)
{
	message_clear(&message);
	packet_drop(&packet);
}

void server_close(void)
{
	int held = (int)registry_counts(server->ledger.registry).fds; /* the kernel closes them at the end */

	forget();
	ends_close();
	server = server_free(server);
	config_clear(&config);
	cr_expect_eq(fd_count(), fds_before + held, "%d descriptors, %d before, %d held", fd_count(),
		     fds_before, held);
}

void turn(void)
{
	/* While a user's share has something to do the loop does not sleep. */
	for (int i = 0; i < 5 || (uv_backend_timeout(&server->loop) == 0 && i < 10000); i++)
		uv_run(&server->loop, UV_RUN_NOWAIT);
}

int connect_as(enum session_kind kind)
{
	struct session *session;
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	session_new(&server->net, pair[0], kind, &session);
	cr_assert_lt(end_count, ENDS_MAX);
	ends[end_count].fd = pair[1];
	ends[end_count++].inode = inode_of(pair[1]);
	return pair[1];
}

/* ---- asking ---- */

void send_request(int sock, struct message_writer *w)
{
	message_end(w);
	cr_assert_eq(message_finish(w), 0);
	cr_assert_eq(packet_send(sock, w->buffer.data, w->buffer.size, NULL, 0), 0);
	message_writer_clear(w);
}

void begin_request(struct message_writer *w, uint64_t id, const char *method)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_request(w, id, method);
}

bool comes(int sock)
{
	const char *why = "";
	int r;

	forget();
	turn();
	r = packet_receive(sock, true, &packet);
	if (r == -EAGAIN)
		return false;
	cr_assert_eq(r, 1, "%d", r);
	cr_assert_eq(message_read(packet.data, packet.bytes, &message, &why), 0, "%s", why);
	return true;
}

bool comes_beside_audit(int sock)
{
	bool here;

	do {
		here = comes(sock);
	} while (here && message.type == MESSAGE_NOTIFICATION && strcmp(message.method, "event") == 0 &&
		 strcmp(answer_text("kind"), "audit") == 0);
	return here;
}

bool is_ended(int sock)
{
	turn();
	return packet_receive(sock, true, &packet) == 0;
}

int answered(int sock)
{
	cr_assert(comes(sock), "no answer");
	cr_assert_eq(message.type, MESSAGE_RESPONSE);
	return message.error.code;
}

int answered_later(int sock)
{
	TURN_UNTIL(comes(sock));
	cr_assert_eq(message.type, MESSAGE_RESPONSE);
	return message.error.code;
}

void send_with(int sock, uint64_t id, const char *method, const struct param *params)
{
	struct message_writer w;

	begin_request(&w, id, method);
	params_put(&w, params);
	send_request(sock, &w);
}

void send_plain(int sock, uint64_t id, const char *method)
{
	send_with(sock, id, method, NULL);
}

int ask_with(int sock, const char *method, const struct param *params)
{
	send_with(sock, 1, method, params);
	return answered(sock);
}

int ask(int sock, const char *method)
{
	return ask_with(sock, method, NULL);
}

void say_hello(int sock)
{
	cr_assert_eq(ASK(sock, "hello", NUMBER("protocol_min", 1), NUMBER("protocol_max", 1),
			 TEXT("client", "test")),
		     0, "%s", message.error.message);
}

int greeted(enum session_kind kind)
{
	int sock = connect_as(kind);

	say_hello(sock);
	return sock;
}

void send_get(int sock, uint64_t id, const char *ref, int64_t wait_ms)
{
	SEND(sock, id, "get_handles", TEXT("ref", ref), SIGNED("wait_ms", wait_ms));
}

uint64_t answer_u64(const char *key)
{
	struct fields f;
	uint64_t value;

	fields_of(&f, message.body);
	value = fields_u64(&f, key);
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	return value;
}

bool answer_has(const char *key)
{
	struct fields f;

	fields_of(&f, message.body);
	return fields_have(&f, key);
}

const char *answer_text(const char *key)
{
	static char text[256];
	struct fields f;

	fields_of(&f, message.body);
	fields_text(&f, key, text, sizeof(text));
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	return text;
}

uint32_t answer_count(const char *key)
{
	uint32_t count = 0;
	struct fields f;

	fields_of(&f, message.body);
	fields_array(&f, key, &count);
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	return count;
}

/* ---- versions, without a loader ---- */

struct publish *building(const char *model, const char *tag, struct publish_part **ret_part)
{
	struct publish_request request = {.model = model,
					  .tag = tag,
					  .alias = "",
					  .device = device_find(&server->ledger.devices, DEVICE_HOST),
					  .world = 1,
					  .bytes = 4096,
					  .publisher = &request};
	struct error error;

	cr_assert_eq(publish_begin(server->ledger.publishes, server->ledger.registry, server->ledger.quota,
				   &request, ret_part, &error),
		     0, "%s", error.message);
	(*ret_part)->publisher = server; /* nobody who dies */
	return (*ret_part)->publish;
}

struct version *complete(struct publish *publish, struct publish_part *part, uint32_t segments)
{
	struct publish_checked checked = {.part.segment_count = segments, .tensors = 3};
	struct version *version = publish->version;
	struct error error;

	checked.part.index = (struct part_fd){memfd_create("index", MFD_CLOEXEC), 100};
	for (uint32_t i = 0; i < segments; i++)
		checked.part.segments[i] =
			(struct part_fd){memfd_create("segment", MFD_CLOEXEC), 4096 / segments};
	cr_assert_eq(publish_commit(publish, part, part->publisher, &checked.content, &error), 0);
	cr_assert_eq(publish_checked(server->ledger.registry, publish, part, &checked, &error), 0);
	cr_assert_eq(versions_complete(&server->work, publish, &error), 0, "%s", error.message);
	return version;
}

struct version *ready_with(const char *model, const char *tag, uint32_t segments)
{
	struct publish_part *part;
	struct publish *publish = building(model, tag, &part);

	return complete(publish, part, segments);
}

struct version *ready(const char *model, const char *tag)
{
	return ready_with(model, tag, 1);
}

uint64_t leases(void)
{
	return registry_counts(server->ledger.registry).leases;
}

struct job *new_load(const char *source, const char *tag, uid_t uid)
{
	struct load_params params = {.wish.source = source};
	struct load_job *load;
	struct error error;

	strcpy(params.name.ref.model, "m");
	strcpy(params.name.ref.name, tag);
	cr_assert_eq(load_job_new(&server->work, &params, uid, true, &load, &error), 0, "%s", error.message);
	return &load->job;
}
