// The C functions: the C++ library with status codes, and DLTensor as views.
#include <cstring>

#include "cleave/cleave.h"
#include "cleave/cleave.hpp"

struct CleaveProgram {
  cleave::Program program;
  std::vector<cleave::Argument> inputs, scalars, outputs;
};
struct CleaveThreads {
  cleave::Threads threads;
};

namespace {

// What the C interface keeps for a thread: errno's way of saying more than a number can.
struct LastError {
  std::string text, code;
};
LastError& last_error() {
  thread_local LastError error;
  return error;
}

CleaveStatus fail(CleaveStatus status, const char* text, const char* code) noexcept {
  try {
    last_error() = {text, code};
  } catch (...) {  // no memory for the text
  }
  return status;
}

CleaveStatus status_of(cleave::Error::Kind kind) {
  switch (kind) {
    case cleave::Error::Kind::invalid: return CLEAVE_INVALID;
    case cleave::Error::Kind::unsupported: return CLEAVE_UNSUPPORTED;
    case cleave::Error::Kind::wrong_result: return CLEAVE_WRONG_RESULT;
    case cleave::Error::Kind::toolchain: return CLEAVE_TOOLCHAIN;
    case cleave::Error::Kind::interrupted: return CLEAVE_INTERRUPTED;
    case cleave::Error::Kind::internal: return CLEAVE_INTERNAL;
  }
  return CLEAVE_INTERNAL;
}

[[noreturn]] void invalid(const std::string& text) {
  throw cleave::Error(cleave::Error::Kind::invalid, "CLV6006", "", "", "error[CLV6006]: the call is wrong: " + text);
}

template <class F>
CleaveStatus guarded(F&& body) noexcept {
  try {
    body();
    return CLEAVE_OK;
  } catch (const cleave::Error& e) {
    return fail(status_of(e.kind()), e.what(), e.code().c_str());
  } catch (const std::bad_alloc&) {
    return fail(CLEAVE_INVALID, "out of memory", "");
  } catch (const std::exception& e) {
    return fail(CLEAVE_INTERNAL, e.what(), "");
  } catch (...) {
    return fail(CLEAVE_INTERNAL, "an unknown exception", "");
  }
}

struct TypeRow {
  cleave::ElementType type;
  uint8_t code, bits;
};
constexpr TypeRow kTypes[] = {
    {cleave::ElementType::f64, kDLFloat, 64},
    {cleave::ElementType::f32, kDLFloat, 32},
    {cleave::ElementType::f16, kDLFloat, 16},
    {cleave::ElementType::bf16, kDLBfloat, 16},
    {cleave::ElementType::i64, kDLInt, 64},
    {cleave::ElementType::i32, kDLInt, 32},
    {cleave::ElementType::i16, kDLInt, 16},
    {cleave::ElementType::i8, kDLInt, 8},
    {cleave::ElementType::u32, kDLUInt, 32},
    {cleave::ElementType::u16, kDLUInt, 16},
    {cleave::ElementType::u8, kDLUInt, 8},
    {cleave::ElementType::boolean, 6, 8},  // kDLBool is newer than some headers
};

DLDataType type_of(cleave::ElementType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return {row.code, row.bits, 1};
  return {0, 0, 0};
}

// `boolean`: bools also come as u8, by exporters that are older than kDLBool.
cleave::View view_of(const DLTensor* t, const char* what, int32_t index, bool boolean) {
  const std::string name = std::string(what) + " " + std::to_string(index);
  if (!t) invalid(name + " is NULL");
  if (t->device.device_type != kDLCPU && t->device.device_type != kDLCUDAHost)
    throw cleave::Error(cleave::Error::Kind::unsupported, "CLV7010", name, "copy it to the CPU",
                        "error[CLV7010]: " + name + " does not lie in CPU memory");
  if (t->ndim < 0 || t->ndim > 64 || (t->ndim > 0 && !t->shape)) invalid(name + " has no proper shape");
  cleave::View v;
  bool known = false;
  for (const TypeRow& row : kTypes) {
    if (t->dtype.lanes != 1 || row.code != t->dtype.code || row.bits != t->dtype.bits) continue;
    v.type = row.type;
    known = true;
  }
  if (!known) {
    throw cleave::Error(cleave::Error::Kind::unsupported, "CLV6006", name, "",
                        "error[CLV6006]: the call is wrong: " + name + " has a type that is not supported (code " +
                            std::to_string(t->dtype.code) + ", bits " + std::to_string(t->dtype.bits) + ", lanes " +
                            std::to_string(t->dtype.lanes) + ")");
  }
  if (boolean && v.type == cleave::ElementType::u8) v.type = cleave::ElementType::boolean;
  v.data = t->data ? static_cast<char*>(t->data) + t->byte_offset : nullptr;
  v.shape.assign(t->shape, t->shape + t->ndim);
  if (t->strides) v.strides.assign(t->strides, t->strides + t->ndim);
  return v;
}

template <class T>
std::vector<cleave::View> views_of(T* const* tensors, int32_t count, const std::vector<cleave::Argument>& wanted,
                                   const char* what) {
  if (count < 0 || (count > 0 && !tensors)) invalid(std::string("the list of ") + what + "s is missing");
  std::vector<cleave::View> out;
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    out.push_back(view_of(tensors[i], what, i, at < wanted.size() && wanted[at].type == cleave::ElementType::boolean));
  }
  return out;
}

const cleave::Argument* at(const std::vector<cleave::Argument>& list, int32_t index) {
  return index >= 0 && static_cast<size_t>(index) < list.size() ? &list[static_cast<size_t>(index)] : nullptr;
}

}  // namespace

extern "C" {

const char* cleave_version(void) { return cleave::library_version(); }
const char* cleave_last_error(void) { return last_error().text.c_str(); }
const char* cleave_last_error_code(void) { return last_error().code.c_str(); }

CleaveStatus cleave_threads_create(int32_t count, CleaveThreads** threads) {
  return guarded([&] {
    if (!threads) invalid("there is no place for the handle");
    *threads = nullptr;
    *threads = new CleaveThreads{cleave::Threads(count)};
  });
}
void cleave_threads_free(CleaveThreads* threads) { delete threads; }

CleaveStatus cleave_program_load(const char* path, CleaveProgram** program) {
  return guarded([&] {
    if (!path || !program) invalid("the path, or the place for the handle, is NULL");
    *program = nullptr;
    const std::string_view text(path);
    const bool graph = text.ends_with(".graph") || text.ends_with(".onnx");
    const cleave::Program p = graph ? cleave::Program::compile(cleave::Graph::load(path)) : cleave::Program::load(path);
    *program = new CleaveProgram{p, p.inputs(), p.scalars(), p.outputs()};
  });
}
void cleave_program_free(CleaveProgram* program) { delete program; }

int32_t cleave_program_inputs(const CleaveProgram* p) { return p ? static_cast<int32_t>(p->inputs.size()) : 0; }
int32_t cleave_program_outputs(const CleaveProgram* p) { return p ? static_cast<int32_t>(p->outputs.size()) : 0; }
int32_t cleave_program_scalars(const CleaveProgram* p) { return p ? static_cast<int32_t>(p->scalars.size()) : 0; }
const char* cleave_program_input_name(const CleaveProgram* p, int32_t index) {
  const cleave::Argument* a = p ? at(p->inputs, index) : nullptr;
  return a ? a->name.c_str() : nullptr;
}
const char* cleave_program_output_name(const CleaveProgram* p, int32_t index) {
  const cleave::Argument* a = p ? at(p->outputs, index) : nullptr;
  return a ? a->name.c_str() : nullptr;
}
DLDataType cleave_program_input_type(const CleaveProgram* p, int32_t index) {
  const cleave::Argument* a = p ? at(p->inputs, index) : nullptr;
  return a ? type_of(a->type) : DLDataType{0, 0, 0};
}
DLDataType cleave_program_output_type(const CleaveProgram* p, int32_t index) {
  const cleave::Argument* a = p ? at(p->outputs, index) : nullptr;
  return a ? type_of(a->type) : DLDataType{0, 0, 0};
}

CleaveStatus cleave_program_output_shape(const CleaveProgram* program, const DLTensor* const* inputs,
                                         int32_t input_count, int32_t output, int64_t* shape, int32_t* rank) {
  return guarded([&] {
    if (!program || !rank) invalid("the program, or the place for the rank, is NULL");
    std::vector<std::vector<int64_t>> shapes;
    for (cleave::View& v : views_of(inputs, input_count, program->inputs, "input"))
      shapes.push_back(std::move(v.shape));
    const auto all = program->program.output_shapes(shapes);
    if (output < 0 || static_cast<size_t>(output) >= all.size())
      invalid("there is no output " + std::to_string(output));
    const std::vector<int64_t>& s = all[static_cast<size_t>(output)];
    const int32_t room = *rank;
    *rank = static_cast<int32_t>(s.size());
    if (room < *rank || (*rank > 0 && !shape)) invalid("the shape has more axes than there is room for");
    for (size_t i = 0; i < s.size(); ++i) shape[i] = s[i];
  });
}

CleaveStatus cleave_program_run(const CleaveProgram* program, const DLTensor* const* inputs, int32_t input_count,
                                const double* scalars, int32_t scalar_count, DLTensor* const* outputs,
                                int32_t output_count, const CleaveThreads* threads) {
  return guarded([&] {
    if (!program) invalid("the program is NULL");
    if (scalar_count < 0 || (scalar_count > 0 && !scalars)) invalid("the list of scalars is missing");
    const std::vector<cleave::View> reads = views_of(inputs, input_count, program->inputs, "input");
    const std::vector<cleave::View> writes = views_of(outputs, output_count, program->outputs, "output");
    program->program.run(reads, writes, std::span<const double>(scalars, static_cast<size_t>(scalar_count)),
                         threads ? &threads->threads : nullptr);
  });
}

}  // extern "C"
