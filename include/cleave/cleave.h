/* Cleave for C: run compiled programs on DLTensor*.

     CleaveProgram* program = NULL;
     if (cleave_program_load("out/attention", &program) != CLEAVE_OK) { puts(cleave_last_error()); ... }
     const DLTensor* inputs[] = {&q, &k, &v};
     DLTensor* outputs[] = {&o};
     if (cleave_program_run(program, inputs, 3, NULL, 0, outputs, 1, NULL) != CLEAVE_OK) ...
     cleave_program_free(program);

   Nothing is thrown through these functions. They may be called from several threads at once; runs of one program may
   overlap. A handle may be freed when no call uses it any more; freeing NULL does nothing. */
#ifndef CLEAVE_CLEAVE_H_
#define CLEAVE_CLEAVE_H_

#include <stddef.h>
#include <stdint.h>

#include <cleave/dlpack.h>

#ifndef CLEAVE_API
#if defined(_WIN32)
#define CLEAVE_API
#else
#define CLEAVE_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CleaveStatus {
  CLEAVE_OK = 0,
  CLEAVE_INVALID = 1,     /* a file, a shape, a type, a buffer or an argument is wrong */
  CLEAVE_UNSUPPORTED = 2, /* an operator, a type, a device or a target that this version lacks */
  CLEAVE_WRONG_RESULT = 3,
  CLEAVE_TOOLCHAIN = 4,
  CLEAVE_INTERRUPTED = 5,
  CLEAVE_INTERNAL = 6
} CleaveStatus;

typedef struct CleaveProgram CleaveProgram;
typedef struct CleaveThreads CleaveThreads;

CLEAVE_API const char* cleave_version(void);

/* What went wrong in the last call of this thread that did not return CLEAVE_OK: a text of one or more lines, and its
   code ("CLV7005", empty for faults of ours). They stay valid until the next such call of this thread. */
CLEAVE_API const char* cleave_last_error(void);
CLEAVE_API const char* cleave_last_error_code(void);

/* Threads that runs share; count 0: all that this process may use. */
CLEAVE_API CleaveStatus cleave_threads_create(int32_t count, CleaveThreads** threads);
CLEAVE_API void cleave_threads_free(CleaveThreads* threads);

/* An artefact folder (`cleave optimize -o`), or a .graph or .onnx file, which is compiled as the cost model prefers. */
CLEAVE_API CleaveStatus cleave_program_load(const char* path, CleaveProgram** program);
CLEAVE_API void cleave_program_free(CleaveProgram* program);

CLEAVE_API int32_t cleave_program_inputs(const CleaveProgram* program);
CLEAVE_API int32_t cleave_program_outputs(const CleaveProgram* program);
CLEAVE_API int32_t cleave_program_scalars(const CleaveProgram* program);
/* Names and types; NULL and a zero type for an index that there is not. Names live as long as the program. */
CLEAVE_API const char* cleave_program_input_name(const CleaveProgram* program, int32_t index);
CLEAVE_API const char* cleave_program_output_name(const CleaveProgram* program, int32_t index);
CLEAVE_API DLDataType cleave_program_input_type(const CleaveProgram* program, int32_t index);
CLEAVE_API DLDataType cleave_program_output_type(const CleaveProgram* program, int32_t index);

/* The shape of an output for inputs of these shapes (their memory is not read). `*rank` is in: the room in `shape`, and
   out: the number of axes. More axes than room: CLEAVE_INVALID, with the number in `*rank`. */
CLEAVE_API CleaveStatus cleave_program_output_shape(const CleaveProgram* program, const DLTensor* const* inputs,
                                                    int32_t input_count, int32_t output, int64_t* shape,
                                                    int32_t* rank);

/* Runs once. All tensors lie in CPU memory (kDLCPU, kDLCUDAHost); strides may be NULL or of any sign. Zero-copy for
   dense tensors that do not overlap. `threads` may be NULL: the calling thread alone. */
CLEAVE_API CleaveStatus cleave_program_run(const CleaveProgram* program, const DLTensor* const* inputs,
                                           int32_t input_count, const double* scalars, int32_t scalar_count,
                                           DLTensor* const* outputs, int32_t output_count,
                                           const CleaveThreads* threads);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_CLEAVE_H_ */
