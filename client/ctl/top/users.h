/* Names of users, each asked for once: a directory service may take its time. */
#ifndef GPUWM_CTL_TOP_USERS_H
#define GPUWM_CTL_TOP_USERS_H

/* The user's name, or the number if there is none. Valid until the next call. */
const char *users_name(unsigned uid);

#endif
