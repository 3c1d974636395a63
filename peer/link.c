/* Bytes over a link that is open, and its end. */
#include "link_internal.h"

#include "../base/utf8.h"
#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int link_error(const struct link *link, struct error *error, int code, const char *detail, const char *format,
	       ...)
{
	char message[TEXT_BYTES_MAX + 1];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	return error_set(error, code, detail, "%s: %s", link->shown, message);
}

/* ---- what OpenSSL says ---- */

/* What the other side may say in an alert about who we are. */
static bool is_refusal(int reason)
{
	return reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED ||
	       reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED ||
	       reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN ||
	       reason == SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE || reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA ||
	       reason == SSL_R_TLSV1_ALERT_ACCESS_DENIED || reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
	       reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED ||
	       reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE;
}

/* What we found about the other side. */
static bool is_stranger(int reason)
{
	return reason == SSL_R_CERTIFICATE_VERIFY_FAILED || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE ||
	       reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
	       reason == SSL_R_NO_SHARED_CIPHER || reason == SSL_R_BAD_PSK;
}

static int refused(const struct link *link, struct error *error)
{
	return link_error(link, error, -EKEYREJECTED, "gpuwm-peer's log there says why",
			  link->keys->secret_count > 0 ? "it refused this node: its secret is another one"
						       : "it refused this node's certificate");
}

/* What helps against a certificate that was refused. */
static const char *certificate_remedy(long why)
{
	switch (why) {
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "ask for the node by a name or an address that its certificate has (subjectAltName)";
	case X509_V_ERR_CERT_NOT_YET_VALID:
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return "give that node a new certificate, or set the clocks right";
	case X509_V_ERR_INVALID_PURPOSE:
		return "its extendedKeyUsage needs serverAuth and clientAuth";
	default:
		return "`authority` in [peers] has to name the authority that signed it";
	}
}

/* Keys of the other side that are none to us. */
static int strange(const struct link *link, int reason, struct error *error)
{
	long why = SSL_get_verify_result(link->tls);

	if (link->keys->secret_count > 0)
		return link_error(link, error, -EKEYREJECTED, "all nodes need the same secret in [peers]",
				  "it does not have this node's secret");
	if (why != X509_V_OK)
		return link_error(link, error, -EKEYREJECTED, certificate_remedy(why),
				  "its certificate is refused: %s", X509_verify_cert_error_string(why));
	return link_error(link, error, -EKEYREJECTED, "set certificate, key and authority in its [peers]",
			  "it has no certificate (%s)",
			  ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason)));
}

static int link_failed(const struct link *link, struct error *error)
{
	unsigned long oldest = ERR_peek_error();
	int reason = ERR_GET_REASON(oldest);
	const char *text = ERR_reason_error_string(oldest);

	ERR_clear_error();
	if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		return link_error(link, error, -ECONNRESET, NULL, "the connection was cut");
	if (reason == ERR_R_MALLOC_FAILURE)
		return link_error(link, error, -ENOMEM, NULL, "out of memory for the connection");
	/* Out of memory, perhaps: it may go well the next time. */
	if (reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR)
		return link_error(link, error, -ECONNRESET, "gpuwm-peer's log there says why",
				  "it could not go on with the connection");
	if (is_refusal(reason))
		return refused(link, error);
	if (is_stranger(reason))
		return strange(link, reason, error);
	return link_error(link, error, -EPROTO, NULL, "it does not speak TLS 1.3 as wanted: %s",
			  text ? text : "no reason is known");
}

/* ---- one step ---- */

static int link_wait_for(struct link *link, short events, uint64_t deadline_ms, struct error *error)
{
	struct pollfd poll_fd = {.fd = link->fd, .events = events};
	uint64_t now;
	int r;

	do {
		now = clock_steady_ms();
		r = now < deadline_ms ? poll(&poll_fd, 1, (int)(deadline_ms - now)) : 0;
	} while (r < 0 && errno == EINTR);
	if (atomic_load(&link->interrupted))
		return link_error(link, error, -ECANCELED, NULL, "the connection was given up");
	if (r < 0)
		return link_error(link, error, -errno, NULL, "%s", strerror(errno));
	return r > 0 ? 0 : link_error(link, error, -ETIMEDOUT, NULL, "it did not answer in time");
}

/* Returns 0 to try again when `*ret_events` are there. */
static int link_judge(struct link *link, int result, int number, short *ret_events, struct error *error)
{
	switch (SSL_get_error(link->tls, result)) {
	case SSL_ERROR_WANT_READ:
		*ret_events = POLLIN;
		return 0;
	case SSL_ERROR_WANT_WRITE:
		*ret_events = POLLOUT;
		return 0;
	case SSL_ERROR_ZERO_RETURN:
		return link_error(link, error, -ENOLINK, NULL, "it ended the connection");
	case SSL_ERROR_SYSCALL:
		ERR_clear_error();
		return link_error(link, error, -ECONNRESET, NULL, "the connection was cut: %s",
				  number != 0 ? strerror(number) : "it ended");
	default:
		return link_failed(link, error);
	}
}

int link_step(struct link *link, int (*step)(SSL *tls, void *user), void *user, uint64_t deadline_ms,
	      struct error *error)
{
	short events = 0;
	int result, r;

	for (;;) {
		if (atomic_load(&link->interrupted))
			return link_error(link, error, -ECANCELED, NULL, "the connection was given up");
		pthread_mutex_lock(&link->lock);
		ERR_clear_error();
		errno = 0;
		result = step(link->tls, user);
		r = result > 0 ? result : link_judge(link, result, errno, &events, error);
		pthread_mutex_unlock(&link->lock);
		if (r != 0)
			return r;
		r = link_wait_for(link, events, deadline_ms, error);
		if (r < 0)
			return r;
	}
}

/* ---- bytes ---- */

struct span {
	char *data;
	size_t bytes;
};

/* Of a link that has become clear. Returns how many bytes went. */
static int move_clear(struct link *link, const struct span *span, bool reads, uint64_t deadline_ms,
		      struct error *error)
{
	ssize_t moved;
	int r = 0;

	for (;;) {
		if (atomic_load(&link->interrupted))
			return link_error(link, error, -ECANCELED, NULL, "the connection was given up");
		moved = reads ? recv(link->fd, span->data, span->bytes, 0)
			      : send(link->fd, span->data, span->bytes, MSG_NOSIGNAL);
		if (moved > 0)
			return moved < INT32_MAX ? (int)moved : INT32_MAX;
		if (moved == 0)
			return link_error(link, error, -ENOLINK, NULL, "it ended the connection");
		if (errno != EAGAIN && errno != EINTR)
			return link_error(link, error, -ECONNRESET, NULL, "the connection was cut: %s",
					  strerror(errno));
		r = link_wait_for(link, reads ? POLLIN : POLLOUT, deadline_ms, error);
		if (r < 0)
			return r;
	}
}

static int read_some(SSL *tls, void *user)
{
	const struct span *span = user;

	return SSL_read(tls, span->data, span->bytes < INT32_MAX ? (int)span->bytes : INT32_MAX);
}

static int write_some(SSL *tls, void *user)
{
	const struct span *span = user;

	return SSL_write(tls, span->data, span->bytes < INT32_MAX ? (int)span->bytes : INT32_MAX);
}

static uint64_t earlier(uint64_t a_ms, uint64_t b_ms)
{
	return a_ms < b_ms ? a_ms : b_ms;
}

/* When all steps of a call have to be done. */
static uint64_t end_of_call(const struct link *link, uint64_t timeout_ms, size_t bytes)
{
	uint64_t end_ms = clock_steady_ms() + timeout_ms + bytes / LINK_BYTES_PER_MS_MIN;

	return link->limit_ms > 0 ? earlier(link->limit_ms, end_ms) : end_ms;
}

void link_clear(struct link *link)
{
	link->clear = true;
}

/* One step of a read or a write. */
static int move_some(struct link *link, struct span *span, bool reads, uint64_t deadline_ms,
		     struct error *error)
{
	if (link->clear)
		return move_clear(link, span, reads, deadline_ms, error);
	return link_step(link, reads ? read_some : write_some, span, deadline_ms, error);
}

void link_limit(struct link *link, uint64_t deadline_ms)
{
	link->limit_ms = deadline_ms;
}

int link_read(struct link *link, void *data, size_t bytes, uint64_t timeout_ms, struct error *error)
{
	struct span span = {data, bytes};
	const uint64_t end_ms = end_of_call(link, timeout_ms, bytes);
	int r;

	while (span.bytes > 0) {
		r = move_some(link, &span, true, earlier(end_ms, clock_steady_ms() + timeout_ms), error);
		if (r == -ENOLINK && span.bytes < bytes)
			return link_error(link, error, -ECONNRESET, NULL,
					  "it ended the connection in the middle of a message");
		if (r < 0)
			return r;
		span.data += r;
		span.bytes -= (size_t)r;
	}
	return 0;
}

int link_write(struct link *link, const void *data, size_t bytes, uint64_t timeout_ms, struct error *error)
{
	struct span span = {(char *)(uintptr_t)data, bytes};
	const uint64_t end_ms = end_of_call(link, timeout_ms, bytes);
	int r;

	while (span.bytes > 0) {
		r = move_some(link, &span, false, earlier(end_ms, clock_steady_ms() + timeout_ms), error);
		if (r < 0)
			return r;
		span.data += r;
		span.bytes -= (size_t)r;
	}
	return 0;
}

/* ---- the end ---- */

void link_interrupt(struct link *link)
{
	atomic_store(&link->interrupted, true);
	shutdown(link->fd, SHUT_RDWR);
}

struct link *link_close(struct link *link)
{
	if (!link)
		return NULL;
	if (link->tls && !link->clear && !SSL_in_init(link->tls))
		SSL_shutdown(link->tls); /* says that this is the end; does not wait */
	ERR_clear_error();
	SSL_free(link->tls);
	if (link->fd >= 0)
		close(link->fd);
	peer_keys_release(link->keys);
	pthread_mutex_destroy(&link->lock);
	free(link);
	return NULL;
}

/* ---- about it ---- */

int link_fd(const struct link *link)
{
	return link->fd;
}

const char *link_peer(const struct link *link)
{
	return link->shown;
}

const char *link_peer_name(const struct link *link)
{
	return link->name;
}

const char *link_peer_address(const struct link *link)
{
	return link->address;
}
