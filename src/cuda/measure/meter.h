/* Energy and power of GPUs together, as machine_ops have them. */
#ifndef REEL_CUDA_METER_H
#define REEL_CUDA_METER_H

#include "base/error.h"

struct backend_meter;

enum reel_status cuda_meter_open(struct backend_meter **out, const char *uuids,
                                 const char *cuda_dir, struct reel_error *err);
enum reel_status cuda_meter_read(const struct backend_meter *meter, double *joules, double *watts,
                                 struct reel_error *err);
void cuda_meter_close(struct backend_meter *meter); /* NULL: nothing */

#endif
