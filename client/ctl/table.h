/* Aligned tables, and the texts that people read: sizes, ages. */
#ifndef GPUWM_CTL_TABLE_H
#define GPUWM_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table;

/* heads: the columns' titles separated by '|'; one that begins with '>' is
 * aligned to the right. NULL when memory is short. */
struct table *table_new(const char *heads);
struct table *table_free(struct table *table);
/* The next cell, from left to right and then the next row; "" shows as "-", other texts as utf8_show makes them.
 * Memory that is short shows when the table is printed. */
void table_cell(struct table *table, const char *text);
void table_cellf(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_size(struct table *table, uint64_t bytes);
/* Prints to stdout and frees. EXIT_DONE, or EXIT_FAILED after saying that memory is short. */
int table_print(struct table *table);

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
