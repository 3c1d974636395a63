/* Help and explanations, in lines that a terminal of 80 columns holds. */
#ifndef GPUWM_CTL_WRAP_H
#define GPUWM_CTL_WRAP_H

#include <stddef.h>
#include <stdio.h>

#define LINE_COLUMNS 80 /* also where the terminal is wider: longer lines are harder to read */

/* Prints the words of text and ends the line. The text goes on at `column`; later lines begin at `indent`. A word in
 * brackets, such as "[--device DEVICE]...", is not divided. */
void lines_wrap(FILE *file, const char *text, size_t column, size_t indent);

#endif
