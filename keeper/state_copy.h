/* A copy of the memfd in which gpuwmd writes its state. */
#ifndef GPUWM_KEEPER_STATE_COPY_H
#define GPUWM_KEEPER_STATE_COPY_H

/* Makes a memfd with the same bytes, holes and seals. Returns its descriptor, which is close-on-exec. Fails with
 * -EINVAL if `fd` is no memfd, and with another -errno. */
int state_copy(int fd);

#endif
