/* The kernel ABI: what a compiled kernel is handed. Plain C; docs/abi.md explains it. */
#ifndef CLEAVE_RUNTIME_ABI_H_
#define CLEAVE_RUNTIME_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A strided view: element (i0, i1, ...) lies at data + i0 * strides[0] + i1 * strides[1] + ... , strides in elements
   and of any sign. The pointer already includes any offset. */
typedef struct CleaveTensor {
  void* data;
  const int64_t* strides;
} CleaveTensor;

/* One call of an executable. Everything but the tensors' elements and the workspace is read-only. */
typedef struct CleaveCall {
  const CleaveTensor* tensors; /* inputs, then outputs, in the executable's order */
  const int64_t* extents;      /* values of the dynamic extents */
  const double* scalars;       /* run-time scalar parameters */
  void* workspace;             /* 64-byte aligned, may be dirty; null when the executable needs none */
} CleaveCall;

/* One launch of a kernel runs tasks 0 .. count - 1 in any order and on any thread. `scratch` is the worker's own memory,
   64-byte aligned, dirty, not shared with a task that runs at the same time. */
typedef void (*CleaveKernel)(const CleaveCall* call, int64_t task, void* scratch);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_RUNTIME_ABI_H_ */
