/* Runs an artefact folder, a .graph or an .onnx file once on ones, and prints the first element of each output.

   usage: run_artefact PATH */
#include <cleave/cleave.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS 16
#define AXES 16

static int fail(void) {
  fprintf(stderr, "%s\n", cleave_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: run_artefact PATH\n");
    return 2;
  }
  CleaveProgram* program = NULL;
  if (cleave_program_load(argv[1], &program) != CLEAVE_OK) return fail();

  /* This example knows the shape of the inputs: those of examples/cpp/attention.cpp. */
  static int64_t shape[] = {2, 32, 16};
  const int32_t inputs = cleave_program_inputs(program), outputs = cleave_program_outputs(program);
  DLTensor in[ARGUMENTS], out[ARGUMENTS];
  const DLTensor* in_list[ARGUMENTS];
  DLTensor* out_list[ARGUMENTS];
  static int64_t out_shapes[ARGUMENTS][AXES];
  if (inputs > ARGUMENTS || outputs > ARGUMENTS) return 1;
  memset(in, 0, sizeof in);
  memset(out, 0, sizeof out);
  for (int32_t i = 0; i < inputs; ++i) {
    float* data = malloc(sizeof(float) * 2 * 32 * 16);
    for (int n = 0; n < 2 * 32 * 16; ++n) data[n] = 1;
    in[i].data = data;
    in[i].device.device_type = kDLCPU;
    in[i].ndim = 3;
    in[i].shape = shape;
    in[i].dtype = cleave_program_input_type(program, i);
    in_list[i] = &in[i];
  }
  for (int32_t i = 0; i < outputs; ++i) {
    int32_t rank = AXES;
    if (cleave_program_output_shape(program, in_list, inputs, i, out_shapes[i], &rank) != CLEAVE_OK) return fail();
    size_t bytes = 8;
    for (int32_t axis = 0; axis < rank; ++axis) bytes *= (size_t)out_shapes[i][axis];
    out[i].data = malloc(bytes);
    out[i].device.device_type = kDLCPU;
    out[i].ndim = rank;
    out[i].shape = out_shapes[i];
    out[i].dtype = cleave_program_output_type(program, i);
    out_list[i] = &out[i];
  }
  if (cleave_program_run(program, in_list, inputs, NULL, 0, out_list, outputs, NULL) != CLEAVE_OK) return fail();
  for (int32_t i = 0; i < outputs; ++i)
    printf("%s[0] = %g\n", cleave_program_output_name(program, i), (double)((float*)out[i].data)[0]);
  for (int32_t i = 0; i < inputs; ++i) free(in[i].data);
  for (int32_t i = 0; i < outputs; ++i) free(out[i].data);
  cleave_program_free(program);
  return 0;
}
