/* Protection against other processes of the same user: by default the kernel lets them trace a
 * program and take its descriptors. */
#ifndef GPUWM_SERVICE_PRIVACY_H
#define GPUWM_SERVICE_PRIVACY_H

/* From now on only root may trace this process and read its memory and its descriptors. The kernel
 * writes no core of it, and its files in /proc are root's. Call it first in a program: exec undoes it. Returns 0. Fails
 * with -errno. */
int privacy_begin(void);

#endif
