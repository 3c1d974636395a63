#include "take_over.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void link_open(struct link *link, int sock)
{
	link->sock = sock;
	link->packet = (struct packet){.data = (uint8_t *)link->text};
}

void link_close(struct link *link)
{
	packet_drop(&link->packet);
	if (link->sock >= 0)
		close(link->sock);
	link->sock = -1;
}

int link_say(const struct link *link, const char *word, const char *text)
{
	char line[512];
	int bytes = snprintf(line, sizeof(line), "%s %s", word, text);

	return packet_send(link->sock, line, bytes < (int)sizeof(line) ? (size_t)bytes : sizeof(line) - 1, NULL,
			   0);
}

/* The kernel takes less if net.core.wmem_max says so, and doubles it. So there is room for a line, because a sender of packets
 * goes over a full buffer by one packet at most, and net.core.wmem_default is no more than wmem_max. */
#define LAST_BUFFER_BYTES (1 << 20)

int link_say_last(const struct link *link, const char *word, const char *text)
{
	setsockopt(link->sock, SOL_SOCKET, SO_SNDBUF, &(int){LAST_BUFFER_BYTES}, sizeof(int));
	return link_say(link, word, text);
}

int link_receive(struct link *link)
{
	int r;

	packet_drop(&link->packet);
	r = packet_receive(link->sock, true, &link->packet);
	/* If the other keeper closed the connection without having read all, the kernel tells that first, once. What the
	 * other keeper sent before is still there. */
	if (r == 0)
		r = packet_receive(link->sock, true, &link->packet);
	if (r <= 0)
		return r;
	link->text[link->packet.bytes] = '\0';
	return link->packet.cut ? -EMSGSIZE : 1;
}

const char *link_text(const struct link *link, const char *word)
{
	size_t bytes = strlen(word);

	if (strncmp(link->text, word, bytes) != 0)
		return NULL;
	return link->text[bytes] == ' ' || link->text[bytes] == '\n' ? link->text + bytes + 1 : NULL;
}
