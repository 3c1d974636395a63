#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
	[LOSS_NONE] = "fine", [LOSS_UNAVAILABLE] = "unavailable", [LOSS_ECC] = "ecc",
	[LOSS_BUS] = "bus",   [LOSS_ABSENT] = "absent",           [LOSS_MIG] = "mig",
};

static enum loss loss_of(const char *word)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i], word) == 0)
			return (enum loss)i;
	machine_refuse("FAKECUDA_LOST", word);
}

/* Read at each call: a test writes the file while other processes run. */
enum loss machine_loss(int device)
{
	const char *path = getenv("FAKECUDA_LOST");
	FILE *file = path && *path ? fopen(path, "re") : NULL;
	enum loss loss = LOSS_NONE;
	char word[16];
	int number;

	while (file && fscanf(file, "%d %15s", &number, word) == 2)
		if (number == device)
			loss = loss_of(word);
	if (file)
		fclose(file);
	return loss;
}
