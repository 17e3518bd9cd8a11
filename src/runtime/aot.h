/* What a library made by `cleave optimize -o` is built of: tables that the compiler writes, and the runtime (aot.c)
   that is linked into each of them. Plain C; the library needs libc and libm only. docs/standalone.md explains its use. */
#ifndef CLEAVE_RUNTIME_AOT_H_
#define CLEAVE_RUNTIME_AOT_H_

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CleaveAotLaunch {
  CleaveKernel kernel;
  int64_t tasks;
} CleaveAotLaunch;

/* An argument, dense row-major. An unused position has no bytes. */
typedef struct CleaveAotArgument {
  int64_t bytes;
  int64_t element_bytes;
} CleaveAotArgument;

typedef struct CleaveAotProgram {
  int64_t inputs, constants, outputs, launches;
  const CleaveAotArgument* input;
  const CleaveAotArgument* output;
  const void* const* constant; /* of each constant: its elements, or null when no launch reads it */
  const int64_t* constant_bytes;
  const void* packed; /* what kernels made of constants ahead of time */
  int64_t packed_bytes;
  const CleaveAotLaunch* launch;
  int64_t workspace_bytes, scratch_bytes; /* of a call; of each of its workers */
  const char* features;                   /* "avx2,fma,...": what the code needs of the processor */
} CleaveAotProgram;

/* The same struct as NAME_options of the generated headers. */
typedef struct CleaveAotOptions {
  int threads;
  int keep_denormals;
  void (*parallel_for)(void* host, int64_t tasks, void (*task)(void* context, int64_t index, int worker),
                       void* context);
  void* host;
  int workers;
} CleaveAotOptions;

enum { CLEAVE_AOT_OK, CLEAVE_AOT_BAD_ARGUMENT, CLEAVE_AOT_NO_MEMORY, CLEAVE_AOT_UNSUPPORTED_CPU };

int cleave_aot_run(const CleaveAotProgram* program, const void* const* inputs, const double* scalars,
                   void* const* outputs, const CleaveAotOptions* options);
int cleave_aot_set_threads(int threads);
void cleave_aot_release(void);
const char* cleave_aot_error(int status);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_RUNTIME_AOT_H_ */
