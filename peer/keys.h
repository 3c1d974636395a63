/* The keys with which this node proves who it is, and checks other nodes. They are read from the files of the settings, and never
 * change afterwards. New files make new keys; connections that exist go on with the old ones. */
#ifndef GPUWM_PEER_KEYS_H
#define GPUWM_PEER_KEYS_H

#include "../service/peer_settings.h"

/* A secret is as strong as the keys that TLS derives from it: 256 bits. A shorter file is a mistake, or a password. */
#define PEER_SECRET_BYTES_MIN 32
/* A larger file is no secret. */
#define PEER_SECRET_BYTES_MAX 4096

struct peer_keys;

/* Reads the files. Returns 0 and sets *ret. The caller owns one hold on the keys.
 *
 * Fails with
 *   -EACCES  The settings name no keys. Or a file can't be read, or others than its owner and its group may read the key or the
 *            secret.
 *   -EINVAL  A file has something else in it, or certificate and key do not belong together.
 *   -EKEYREJECTED  This node's certificate is out of date, or not valid yet.
 *   -ENOENT, -ENOMEM */
int peer_keys_read(const struct peer_settings *settings, struct peer_keys **ret, struct error *error);

/* Takes one more hold. Threads: any. Returns `keys`. */
struct peer_keys *peer_keys_hold(struct peer_keys *keys);
/* Gives a hold back; the last one frees the keys. NULL is fine. Threads: any. Returns NULL. */
struct peer_keys *peer_keys_release(struct peer_keys *keys);

/* Returns when this node's certificate ends, in seconds since 1970. Returns 0 if the keys are a secret. */
uint64_t peer_keys_end(const struct peer_keys *keys);

#endif
