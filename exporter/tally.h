/* What the exporter counts of itself. Any thread adds to it. */
#ifndef GPUWM_EXPORTER_TALLY_H
#define GPUWM_EXPORTER_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

struct tally {
	_Atomic uint64_t scrapes; /* requests for /metrics */
	_Atomic uint64_t pages; /* requests for the page and its state */
	_Atomic uint64_t refused; /* requests that were answered with a 4xx code */
	_Atomic uint64_t cut; /* connections that were slow */
	_Atomic uint64_t snapshots; /* that gpuwmd was asked for */
	_Atomic uint64_t failed; /* of them */
	_Atomic uint64_t late; /* requests that got no snapshot in SNAPSHOT_WAIT_MS */
	_Atomic uint64_t connects; /* to gpuwmd */
};

#endif
