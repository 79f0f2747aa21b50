/* What the machine gives this process. */
#ifndef REEL_BASE_MACHINE_H
#define REEL_BASE_MACHINE_H

#include <stdint.h>

/* Bytes a process may still take without pushing others out: the smaller of what the kernel calls
 * available and what its control group leaves. 0 when unknown. */
uint64_t machine_memory_available(void);

/* Bytes there are: of the machine, or of the control group when that is less. 0 when unknown. */
uint64_t machine_memory_total(void);

#endif
