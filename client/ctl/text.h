/* The texts that people read: sizes, ages, times, digits. */
#ifndef GPUWM_CTL_TEXT_H
#define GPUWM_CTL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define SHORT_TEXT 24

/* "1.5 GiB", "512 B". */
const char *size_text(uint64_t bytes, char ret_text[SHORT_TEXT]);
/* "3s", "12m", "5h", "2d": from `then` in milliseconds since 1970 until now; "" for 0. */
const char *age_text(uint64_t then_ms, char ret_text[SHORT_TEXT]);
/* "412 ms", "3.21 s", "2:05 min". */
const char *time_text(uint64_t ms, char ret_text[SHORT_TEXT]);
/* "1.5 GiB/s"; "" where no time passed or nothing was done. */
const char *rate_text(uint64_t bytes, uint64_t ms, char ret_text[SHORT_TEXT]);
/* Digests and ids in digits; ret_text has 2 * count + 1 bytes. */
const char *hex_text(const uint8_t *bytes, size_t count, char *ret_text);

#endif
