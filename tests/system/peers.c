/* gpuwm-peer: who gets what from it, and what nobody does to it. tests/unit/peer_stranger.c has all who are refused. */
#include "described.h"
#include "harness.h"

#include "tests/support/any/own_folder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A gpuwm-peer beside the test's gpuwmd. */
static struct {
	pid_t pid;
	unsigned port;
	char secret[96], config[96], asking[96], log[96], source[64]; /* source: m@v1 there */
} peer;

static void end(void)
{
	if (peer.pid > 0) {
		kill(peer.pid, SIGKILL);
		waitpid(peer.pid, NULL, 0);
	}
	memset(&peer, 0, sizeof(peer));
	harness_cleanup();
}

TestSuite(peers, .fini = end);

static void write_text(const char *path, unsigned mode, const char *format, ...)
{
	va_list arguments;
	FILE *file = fopen(path, "we");

	cr_assert(file, "%s", path);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	fchmod(fileno(file), mode);
	fclose(file);
}

static void secret_write(const char *secret)
{
	write_text(peer.secret, 0600, "%s\n", secret);
}

/* A gpuwmd that may take from peers, and whose model `closed` is for root alone. The secret's file has to be there first. */
static struct gpuwmd *begin(void)
{
	char set[128];

	snprintf(peer.secret, sizeof(peer.secret), "%s/peers.secret", own_folder());
	snprintf(set, sizeof(set), "peers.secret=%s", peer.secret);
	secret_write("first-first-first-first-first-first");
	return gpuwmd_start("--set", set, "--set", "model.1.match=closed", "--set", "model.1.attach=0", NULL);
}

static char *log_read(void)
{
	static char text[16384];
	int fd = open(peer.log, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[bytes < 0 ? 0 : bytes] = '\0';
	close(fd);
	return text;
}

static bool peer_says(const char *words)
{
	return strstr(log_read(), words) != NULL;
}

static void run_peer(const struct gpuwmd *d, uid_t uid)
{
	char program[256];
	int log = open(peer.log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	snprintf(program, sizeof(program), "%s/bin/gpuwm-peer", build_path());
	if (uid != geteuid() && setuid(uid) < 0)
		_exit(126);
	execl(program, "gpuwm-peer", "--config", peer.config, "--socket", d->socket, NULL);
	_exit(127);
}

/* Starts it without waiting. settings: lines of [peers] besides the secret. */
static void peer_spawn(const struct gpuwmd *d, const char *settings, uid_t uid)
{
	snprintf(peer.config, sizeof(peer.config), "%s/peer.conf", d->dir);
	snprintf(peer.asking, sizeof(peer.asking), "%s/asking.conf", d->dir);
	snprintf(peer.log, sizeof(peer.log), "%s/peer.log", d->dir);
	write_text(peer.config, 0644, "[peers]\n%s", settings);
	peer.pid = fork();
	if (peer.pid == 0)
		run_peer(d, uid);
}

/* Waits until it serves, and finds its port. */
static void peer_wait(void)
{
	const char *port;

	cr_assert(EVENTUALLY(SOON_MS, peer_says("(port ")), "%s", log_read());
	port = strstr(log_read(), "(port ");
	peer.port = (unsigned)strtoul(port + 6, NULL, 10);
	snprintf(peer.source, sizeof(peer.source), "peer://127.0.0.1:%u/m@v1", peer.port);
}

static void peer_start_as(const struct gpuwmd *d, uid_t uid)
{
	char settings[256];

	snprintf(settings, sizeof(settings), "secret = %s\nlisten = 127.0.0.1:0\n", peer.secret);
	peer_spawn(d, settings, uid);
	peer_wait();
	write_text(peer.asking, 0644, "[peers]\nsecret = %s\npeer = 127.0.0.1:%u\n", peer.secret, peer.port);
}

static void peer_start(const struct gpuwmd *d)
{
	peer_start_as(d, geteuid());
}

/* Its exit code once it has ended, which it must within SOON_MS. */
static int peer_ended(void)
{
	int status = 0;

	cr_assert(EVENTUALLY(SOON_MS, waitpid(peer.pid, &status, WNOHANG) == peer.pid));
	peer.pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int peer_stop(void)
{
	kill(peer.pid, SIGTERM);
	return peer_ended();
}

static void built(void)
{
	char program[256];

	snprintf(program, sizeof(program), "%s/bin/gpuwm-peer", build_path());
	SKIP_UNLESS(access(program, X_OK) == 0, "this build has no gpuwm-peer: no OpenSSL");
}

/* In the body: a gpuwmd with m@v1, and m is current. */
#define PEER_TEST(name) GPUWMD_TEST_IF(peers, name, built(), begin(), gpuwmd_stop_empty)

/* Asks gpuwm-peer, for this form of output. */
#define ASK(form) CTL("ls", "--peers", "--config", peer.asking, "-o", form)

/* ---- what it serves -------------------------------------------------------- */

PEER_TEST(another_node_sees_and_takes_a_version)
{
	char source[64];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("m@v1");
	SAYS("yes");
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	cr_assert_eq(ASK("name"), 0);
	SAYS(source);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	worker_reads(d, "copy@v1", 1);
	cr_expect(EVENTUALLY(SOON_MS, peer_says("took m@v1")), "%s", log_read());
	cr_assert_eq(CTL("jobs", "-o", "json"), 0);
	SAYS("both had met after ");
	SAYS(" has the version\"");
	cr_assert_eq(ASK("json"), 0);
	cr_expect(strstr(output, "\"fingerprint\":\""), "the sums are known now: %s", output);
	cr_expect_eq(peer_stop(), 0, "%s", log_read());
	DROP(d, "copy@v1", "m@v1");
}

/* It is a worker as any other, and a version that it may not attach does not exist for other nodes. */
PEER_TEST(rules_for_models_hold)
{
	NEEDS_ROOT();
	SKIP_UNLESS(build_is_open_to(65534), "another user can't run the build's programs");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "open@v1");
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "closed@v1");
	chmod(d->dir, 0755);
	chmod(d->socket, 0666);
	cr_assert_eq(chown(peer.secret, 65534, 65534), 0);
	peer_start_as(d, 65534);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("open@v1");
	cr_expect_null(strstr(output, "closed@v1"), "%s", output);
	peer_stop();
	DROP(d, "open@v1", "closed@v1");
}

/* Whoever retires a version waits for a take and a short time more, not for ever. */
PEER_TEST(a_version_is_held_while_it_is_taken_and_a_moment_more)
{
	char source[64];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	cr_expect_eq(status_of(d, "leases"), 0, "nobody takes it");
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	CTL_IS(0, "ps");
	SAYS("gpuwm-peer");
	cr_expect_eq(peer_stop(), 0);
	cr_expect(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(a_lease_that_is_revoked_is_given_up)
{
	char source[64], uid[16];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	snprintf(uid, sizeof(uid), "%u", geteuid());
	CTL_IS(0, "kick", "--uid", uid);
	cr_expect(EVENTUALLY(SOON_MS, peer_says("m@v1 is served no longer")), "%s", log_read());
	CTL_IS(0, "load", source, "again@v1", "--device", d->device, "--wait");
	peer_stop();
	DROP(d, "again@v1", "copy@v1", "m@v1");
}

/* ---- keys ------------------------------------------------------------------- */

PEER_TEST(does_not_start_without_keys)
{
	peer_spawn(d, "listen = 127.0.0.1:0\n", geteuid());
	cr_expect_eq(peer_ended(), 1);
	cr_expect(peer_says("there are no keys"), "%s", log_read());
	cr_expect(peer_says("set certificate, key and authority, or secret"), "%s", log_read());
}

PEER_TEST(does_not_start_without_an_address)
{
	char settings[128];

	snprintf(settings, sizeof(settings), "secret = %s\n", peer.secret);
	peer_spawn(d, settings, geteuid());
	cr_expect_eq(peer_ended(), 1);
	cr_expect(peer_says("this node serves nothing"), "%s", log_read());
}

PEER_TEST(takes_new_keys_at_sighup_and_keeps_the_old_ones_if_they_are_wrong)
{
	peer_start(d);
	secret_write("short");
	kill(peer.pid, SIGHUP);
	cr_expect(EVENTUALLY(SOON_MS, peer_says("the old keys stay")), "%s", log_read());
	secret_write("second-second-second-second-second");
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("secret");
	cr_expect(EVENTUALLY(SOON_MS, peer_says("all nodes need the same secret")), "%s", log_read());
	kill(peer.pid, SIGHUP);
	cr_expect(EVENTUALLY(SOON_MS, peer_says("were read again")), "%s", log_read());
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no versions on other nodes");
	cr_expect_null(strstr(output, "secret"), "%s", output);
	peer_stop();
}

PEER_TEST(tells_who_can_not_be_asked)
{
	peer_start(d);
	peer_stop();
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no other node answered\nfailed: 127.0.0.1");
	SAYS("Connection refused");
	chmod(peer.secret, 0644);
	cr_expect_eq(ASK("table"), 1);
	SAYS("others may read");
}

/* ---- certificates ---- */

static const char make_certificates[] =
	"cd %s && e='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && "
	"openssl req -x509 $e -subj /CN=a -keyout a.key -out a.pem 2>&1 && "
	"for n in one two; do openssl req $e -subj /CN=$n -keyout $n.key -out $n.csr 2>&1 && "
	"printf \"subjectAltName=DNS:$n.example,IP:127.0.0.1\\n\" >$n.ext && "
	"openssl x509 -req -in $n.csr -CA a.pem -CAkey a.key -days 2 -extfile $n.ext -out $n.pem 2>&1 || exit 1; done";

static void certificates_make(const struct gpuwmd *d)
{
	char command[2048];
	FILE *shell;

	snprintf(command, sizeof(command), make_certificates, d->dir);
	shell = popen(command, "re");
	cr_assert(shell);
	while (fgets(output, sizeof(output), shell))
		;
	cr_assert_eq(pclose(shell), 0, "%s", output);
}

/* The section with the files of a node, and more lines. */
static const char *files_of(const struct gpuwmd *d, const char *node, const char *more)
{
	static char text[1024];

	snprintf(text, sizeof(text), "certificate = %s/%s.pem\nkey = %s/%s.key\nauthority = %s/a.pem\n%s",
		 d->dir, node, d->dir, node, d->dir, more);
	return text;
}

PEER_TEST(certificates_tell_who_may_take)
{
	certificates_make(d);
	peer_spawn(d, files_of(d, "one", "listen = 127.0.0.1:0\nnames = two.example\n"), geteuid());
	peer_wait();
	write_text(peer.asking, 0644, "[peers]\n%speer = 127.0.0.1:%u\n", files_of(d, "two", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("no versions on other nodes");
	cr_expect_null(strstr(output, "127.0.0.1"), "%s", output);
	write_text(peer.asking, 0644, "[peers]\n%speer = 127.0.0.1:%u\n", files_of(d, "one", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("has none of the names that may take");
	write_text(peer.asking, 0644, "[peers]\n%speer = localhost:%u\n", files_of(d, "two", ""), peer.port);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("hostname mismatch");
	cr_expect_eq(peer_stop(), 0, "%s", log_read());
}

/* ---- strangers and the end ---------------------------------------------------- */

/* A connection from an address of this machine's own network that says nothing. */
static int connect_from(unsigned host)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + host)};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((in_port_t)peer.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* More than the places for those who have not proved who they are, from many addresses and from one. */
PEER_TEST(strangers_do_not_keep_nodes_out)
{
	int fds[120];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	for (unsigned i = 0; i < 120; i++)
		fds[i] = connect_from(i < 80 ? 10 + i : 9);
	cr_assert_eq(ASK("table"), 0, "%s", output);
	SAYS("m@v1");
	cr_expect(EVENTUALLY(SOON_MS, peer_says("connections were refused or cut")), "%s", log_read());
	for (unsigned i = 0; i < 120; i++)
		close(fds[i]);
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "m@v1");
}

/* A user of a node that takes keeps more connections open than one address may have, and says nothing. */
PEER_TEST(silent_connections_do_not_keep_a_load_from_the_same_address_out)
{
	int fds[40];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	for (unsigned i = 0; i < 40; i++)
		fds[i] = connect_from(1);
	CTL_IS(0, "load", peer.source, "copy@v1", "--device", d->device, "--wait");
	worker_reads(d, "copy@v1", 1);
	for (unsigned i = 0; i < 40; i++)
		close(fds[i]);
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(ends_at_once_whoever_is_connected)
{
	int64_t begin_ms;
	int fd;

	peer_start(d);
	fd = connect_from(10);
	begin_ms = clock_ms();
	cr_expect_eq(peer_stop(), 0, "%s", log_read());
	cr_expect_lt(clock_ms() - begin_ms, 4000);
	close(fd);
}

/* ---- taking ------------------------------------------------------------------ */

#define REFUSES(...) cr_assert_neq(CTL(__VA_ARGS__), 0, "%s", output)

GPUWMD_TEST(peers, nothing_is_taken_without_keys)
{
	REFUSES("load", "peer://127.0.0.1/m@v1", "m@v1", "--device", d->device);
	SAYS("it has no keys for them");
	SAYS("[peers]");
}

/* The text behind this key of what gpuwmctl printed. */
static const char *text_of(const char *key, char ret[65])
{
	const char *at = strstr(output, key);

	cr_assert(at, "%s is not in %s", key, output);
	snprintf(ret, 65, "%s", at + strlen(key) + 3);
	return ret;
}

PEER_TEST(only_the_fingerprint_that_is_expected_is_taken)
{
	static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
	char source[64], fingerprint[65];

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	REFUSES("load", source, "copy@v1", "--device", d->device, "--wait", "--expect", zeros);
	SAYS("expected was 0000");
	SAYS("nothing was taken");
	snprintf(fingerprint, sizeof(fingerprint), "%s", strstr(output, "the fingerprint ") + 16);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait", "--expect", fingerprint);
	worker_reads(d, "copy@v1", 1);
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(a_copy_has_the_content_of_what_it_was_taken_from)
{
	char source[64], there[65], here[65];

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	peer_start(d);
	snprintf(source, sizeof(source), "peer://127.0.0.1:%u/m@v1", peer.port);
	CTL_IS(0, "load", source, "copy@v1", "--device", d->device, "--wait");
	CTL_IS(0, "-o", "json", "show", "m@v1");
	text_of("\"content\"", there);
	CTL_IS(0, "-o", "json", "show", "copy@v1");
	text_of("\"content\"", here);
	cr_expect_eq(memcmp(there, here, 32), 0, "%s, %s", there, here);
	CTL_IS(0, "verify", "copy@v1", "--wait");
	SAYS("intact");
	CTL_IS(0, "-o", "json", "ls", "copy");
	SAYS(source);
	/* Nothing says that the peer has it for ever. */
	REFUSES("verify", "copy@v1", "--source");
	SAYS("copy@v1 has no source: no files are known");
	REFUSES("demote", "copy@v1", "--to", "files");
	SAYS("gpuwmctl save copy@v1 FOLDER");
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "copy@v1", "m@v1");
}

PEER_TEST(what_a_copy_can_not_have_is_refused)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait", "--key", "a=b");
	SAYS("can't get another key");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait", "--segment-bytes", "2M");
	SAYS("has the segments that it has there");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--ranks", "2", "--cut", "llama");
	SAYS("is not cut: `ranks` is for files");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--only", "scalar");
	SAYS("`only` is for files");
	REFUSES("load", "peer://127.0.0.1:1/m@v1", "copy@v1", "--device", d->device, "--wait");
	SAYS("Connection refused");
	REFUSES("load", "peer://:1", "copy@v1", "--device", d->device);
	SAYS("peer://HOST[:PORT]/MODEL@TAG");
	REFUSES("load", "m@v1", "copy@v1", "--from", "peers", "--device", d->device, "--wait");
	SAYS("no peer is known");
	REFUSES("load", "m@v1", "copy@v1", "--from", "files");
	SAYS("--from takes peers");
	REFUSES("load", peer.source, "copy@v1", "--expect", "abc");
	SAYS("64 hexadecimal digits");
	REFUSES("load", checkpoint_write(d, "v2", SMALL(2)), "copy@v1", "--device", d->device, "--expect",
		"00ff7f80a5000000000000000000000000000000000000000000000000000abc");
	SAYS("only versions of a peer have a fingerprint");
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "m@v1");
}

/* An attach would promote it, but other nodes don't decide what lies in this node's memory. */
PEER_TEST(a_demoted_version_is_refused_and_stays_where_it_is)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	REFUSES("load", peer.source, "copy@v1", "--device", d->device, "--wait");
	SAYS("m@v1 lies on files there, and only versions on their devices are served");
	CTL_IS(0, "ls", "m");
	SAYS("ready, on files ");
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "m@v1");
}

PEER_TEST(a_plan_says_what_a_copy_takes)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	CTL_IS(0, "load", peer.source, "copy@v1", "--device", d->device, "--dry-run");
	SAYS("FITS");
	SAYS("yes");
	cr_expect_eq(peer_stop(), 0);
	DROP(d, "m@v1");
}

/* ---- after a reboot ------------------------------------------------------------ */

static const char *secret_setting(void)
{
	static char set[128];

	snprintf(peer.secret, sizeof(peer.secret), "%s/peers.secret", own_folder());
	snprintf(set, sizeof(set), "peers.secret=%s", peer.secret);
	secret_write("first-first-first-first-first-first");
	return set;
}

/* In the body: the same with a folder of descriptions. */
#define REBOOT_TEST(name, ...)                                                                                 \
	GPUWMD_TEST_IF(peers, name, built(),                                                                   \
		       described_start("--set", secret_setting() __VA_OPT__(, ) __VA_ARGS__, NULL),            \
		       described_stop)

/* m@copy is taken from m@v1, and described. */
static void take_copy(struct gpuwmd *d)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	peer_start(d);
	CTL_IS(0, "load", peer.source, "m@copy", "--device", d->device, "--wait");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "copy")));
}

/* gpuwm-peer stands still meanwhile: the harness waits until its own session is the only one. */
static void reboot_beside_peer(struct gpuwmd *d)
{
	cr_assert_eq(kill(peer.pid, SIGSTOP), 0);
	described_reboot(d, SIGKILL);
	cr_assert_eq(kill(peer.pid, SIGCONT), 0);
}

/* The node has the content under another name by then. */
REBOOT_TEST(a_copy_comes_back_from_any_node_that_has_its_content)
{
	take_copy(d);
	load_version(d, checkpoint_write(d, "again", SMALL(1)), "m@again");
	CTL_IS(0, "rm", "--aliases", "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "again") && tiers_number(d, "described") == 2));
	reboot_beside_peer(d);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == 2));
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "verify", "m@copy", "--wait");
	CTL_IS(0, "-o", "json", "ls", "m");
	SAYS(peer.source);
	cr_expect_eq(peer_stop(), 0);
}

REBOOT_TEST(a_copy_comes_back_from_files_with_its_content, "--set", "tiers.restore=no")
{
	take_copy(d);
	cr_expect_eq(peer_stop(), 0);
	described_reboot(d, SIGKILL);
	CTL_IS(0, "ls", "m");
	SAYS("on files");
	REFUSES("describe", "m@copy", checkpoint_write(d, "other", SMALL(2)), "--wait");
	CTL_IS(0, "describe", "m@copy", checkpoint_write(d, "same", SMALL(1)), "--wait");
	CTL_IS(0, "promote", "m@copy", "--wait");
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "demote", "m@copy", "--to", "files", "--wait");
}

/* A version of the same model is not what was taken. The node is this one: it has the content, but on files. */
REBOOT_TEST(a_copy_does_not_come_back_as_something_else, "--set", "tiers.restore=no")
{
	take_copy(d);
	load_version(d, checkpoint_write(d, "other", SMALL(2)), "m@other");
	CTL_IS(0, "rm", "--aliases", "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "other") && tiers_number(d, "described") == 2));
	reboot_beside_peer(d);
	CTL_IS(0, "promote", "m@other", "--wait");
	CTL_IS(0, "promote", "m@copy");
	cr_assert(EVENTUALLY(SOON_MS, CTL("jobs", "-o", "json") == 0 &&
					      strstr(output, "has the content of m@v1 on files, and only")));
	cr_expect_eq(peer_stop(), 0);
}
