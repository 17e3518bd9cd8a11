// Makes the shared library of a program: kernels (already compiled), tables and entry points (LLVM IR), the runtime and
// the scalar functions (compiled with this compiler, embedded), linked by lld in this process.
#include "jit/library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>

#include <filesystem>
#include <fstream>

#include "base/codes.hpp"
#include "jit/emit.hpp"
#include "jit/link.hpp"
#include "jit/target_machine.hpp"
#include "runtime/aot.h"

// The objects of runtime/aot.c and jit/aot/helpers.cpp.
extern "C" const uint8_t cleave_aot_runtime_begin[], cleave_aot_runtime_end[];
extern "C" const uint8_t cleave_aot_helpers_begin[], cleave_aot_helpers_end[];

namespace cleave::jit {

namespace {

namespace fs = std::filesystem;
using namespace llvm;

constexpr const char* kFeatures[] = {
#define FEATURE(name, leaf, subleaf, reg, bit, state) name,
#include "runtime/aot_features.def"
#undef FEATURE
};

int64_t bytes_of(const lower::Argument& a) {
  int64_t bytes = byte_size(a.dtype);
  for (const int64_t e : a.shape) bytes *= e;
  return bytes;
}

// What the code needs of the processor, as far as the library can ask for it.
std::string required_features(const Target& t, bool matrix_unit) {
  std::vector<StringRef> has;
  if (t.cpu == "x86-64-v3")
    has = {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3"};
  else if (t.cpu == "x86-64-v2")
    has = {"sse4.2", "ssse3", "popcnt"};
  SmallVector<StringRef> words;
  StringRef(t.features).split(words, ',');
  for (const StringRef w : words)
    if (w.starts_with("+")) has.push_back(w.drop_front());
  std::string out;
  for (const StringRef f : kFeatures)
    if (std::find(has.begin(), has.end(), f) != has.end() && (matrix_unit || !f.starts_with("amx")))
      out += (out.empty() ? "" : ",") + f.str();
  return out;
}

static_assert(sizeof(CleaveAotProgram) == 14 * 8 && offsetof(CleaveAotProgram, input) == 4 * 8 &&
              offsetof(CleaveAotProgram, packed_bytes) == 9 * 8 &&
              offsetof(CleaveAotProgram, workspace_bytes) == 11 * 8 && offsetof(CleaveAotProgram, features) == 13 * 8);
static_assert(sizeof(CleaveAotLaunch) == 16 && sizeof(CleaveAotArgument) == 16);

class Glue {
 public:
  Glue(LLVMContext& context, const Built& program, const jit::Constants* constants, const Interface& interface)
      : context_(context),
        module_(std::make_unique<Module>("cleave_library", context)),
        b_(context),
        program_(program),
        l_(program.lowered()),
        interface_(interface) {
    if (constants) memory_ = memory_of(*constants);
  }

  std::unique_ptr<Module> make() {
    const GlobalVariable* table = program_table();
    const std::string name = c_identifier(interface_.name);
    entry(name, table);
    // NAME_run hands its arguments on; so do the others.
    forward(name + "_run", "cleave_aot_run", b_.getInt32Ty(), {ptr(), ptr(), ptr(), ptr()}, table);
    forward(name + "_set_threads", "cleave_aot_set_threads", b_.getInt32Ty(), {b_.getInt32Ty()}, nullptr);
    forward(name + "_release", "cleave_aot_release", b_.getVoidTy(), {}, nullptr);
    forward(name + "_error", "cleave_aot_error", ptr(), {b_.getInt32Ty()}, nullptr);
    std::string problem;
    raw_string_ostream stream(problem);
    CHECK(!verifyModule(*module_, &stream), "the library's entry points are wrong: {}", stream.str());
    return std::move(module_);
  }

 private:
  Type* ptr() { return b_.getPtrTy(); }
  Constant* number(int64_t n) { return b_.getInt64(static_cast<uint64_t>(n)); }
  Constant* null() { return ConstantPointerNull::get(b_.getPtrTy()); }

  GlobalVariable* global(Constant* value, const char* name) {
    auto* g = new GlobalVariable(*module_, value->getType(), true, GlobalValue::InternalLinkage, value, name);
    g->setAlignment(Align(8));
    return g;
  }
  Constant* array(Type* element, const std::vector<Constant*>& values, const char* name) {
    if (values.empty()) return null();
    return global(ConstantArray::get(ArrayType::get(element, values.size()), values), name);
  }
  // Far data: the rest of the library stays within reach of 32-bit offsets.
  Constant* blob(const void* data, int64_t bytes, const char* name) {
    if (!data || bytes == 0) return null();
    const StringRef text(static_cast<const char*>(data), static_cast<size_t>(bytes));
    auto* g = global(ConstantDataArray::getRaw(text, text.size(), b_.getInt8Ty()), name);
    g->setAlignment(Align(4096));
    g->setSection(".lrodata.cleave");
    g->setCodeModel(CodeModel::Large);
    return g;
  }

  Constant* arguments(const std::vector<lower::Argument>& list, const char* name) {
    StructType* type = StructType::get(b_.getInt64Ty(), b_.getInt64Ty());
    std::vector<Constant*> out;
    for (const lower::Argument& a : list)
      out.push_back(ConstantStruct::get(type, {number(a.name.empty() ? 0 : bytes_of(a)), number(byte_size(a.dtype))}));
    return array(type, out, name);
  }

  GlobalVariable* program_table() {
    std::vector<Constant*> constant, constant_bytes, launches;
    for (size_t i = 0; i < l_.constants.size(); ++i) {
      const int64_t bytes = l_.constant_read[i] ? bytes_of(l_.constants[i]) : 0;
      constant.push_back(blob(memory_.data.at(i), bytes, "constant"));
      constant_bytes.push_back(number(bytes));
    }
    StructType* launch = StructType::get(ptr(), b_.getInt64Ty());
    FunctionType* kernel = FunctionType::get(b_.getVoidTy(), {ptr(), b_.getInt64Ty(), ptr()}, false);
    int64_t scratch = 0;
    for (const lower::Launch& x : l_.launches) {
      if (x.once) continue;
      scratch = std::max(scratch, x.scratch_bytes);
      auto* f = cast<Function>(module_->getOrInsertFunction(kernel_symbol(x.function), kernel).getCallee());
      f->setVisibility(GlobalValue::HiddenVisibility);
      launches.push_back(ConstantStruct::get(launch, {f, number(x.tasks)}));
    }
    const std::string features = required_features(program_.target(), vec::uses_matrix_unit(l_.module));
    std::vector<Constant*> fields = {number(static_cast<int64_t>(l_.inputs.size())),
                                     number(static_cast<int64_t>(l_.constants.size())),
                                     number(static_cast<int64_t>(l_.outputs.size())),
                                     number(static_cast<int64_t>(launches.size())),
                                     arguments(l_.inputs, "inputs"),
                                     arguments(l_.outputs, "outputs"),
                                     array(ptr(), constant, "constants"),
                                     array(b_.getInt64Ty(), constant_bytes, "constant_bytes"),
                                     blob(memory_.packed, l_.packed_bytes, "packed"),
                                     number(l_.packed_bytes),
                                     array(launch, launches, "launches"),
                                     number(l_.workspace_bytes),
                                     number(scratch),
                                     global(ConstantDataArray::getString(context_, features), "features")};
    return global(ConstantStruct::getAnon(context_, fields), "program");
  }

  Function* function(const std::string& name, FunctionType* type) {
    auto* f = Function::Create(type, Function::ExternalLinkage, name, *module_);
    f->addFnAttr(Attribute::NoUnwind);
    b_.SetInsertPoint(BasicBlock::Create(context_, "entry", f));
    return f;
  }
  Function* runtime(const char* name, FunctionType* type) {
    auto* f = cast<Function>(module_->getOrInsertFunction(name, type).getCallee());
    f->setVisibility(GlobalValue::HiddenVisibility);
    return f;
  }

  Function* forward(const std::string& name, const char* to, Type* result, std::vector<Type*> parameters,
                    const GlobalVariable* table) {
    auto* f = function(name, FunctionType::get(result, parameters, false));
    std::vector<Value*> values;
    if (table) {
      parameters.insert(parameters.begin(), ptr());
      values.push_back(const_cast<GlobalVariable*>(table));
    }
    for (Argument& a : f->args()) values.push_back(&a);
    Value* v = b_.CreateCall(runtime(to, FunctionType::get(result, parameters, false)), values);
    if (result->isVoidTy())
      b_.CreateRetVoid();
    else
      b_.CreateRet(v);
    return f;
  }

  // NAME(inputs..., scalars..., outputs...): gathers its arguments and calls the runtime.
  void entry(const std::string& name, const GlobalVariable* table) {
    std::vector<Type*> parameters(interface_.inputs.size(), ptr());
    parameters.insert(parameters.end(), interface_.scalars.size(), b_.getDoubleTy());
    parameters.insert(parameters.end(), interface_.outputs.size(), ptr());
    auto* f = function(name, FunctionType::get(b_.getInt32Ty(), parameters, false));
    unsigned next = 0;
    const auto gather = [&](size_t n, Type* type) -> Value* {
      Value* memory = b_.CreateAlloca(type, b_.getInt32(static_cast<uint32_t>(std::max<size_t>(n, 1))));
      for (size_t i = 0; i < n; ++i) b_.CreateStore(f->getArg(next++), b_.CreateConstGEP1_64(type, memory, i));
      return memory;
    };
    Value* inputs = gather(interface_.inputs.size(), ptr());
    Value* scalars = gather(interface_.scalars.size(), b_.getDoubleTy());
    Value* outputs = gather(interface_.outputs.size(), ptr());
    auto* run =
        runtime("cleave_aot_run", FunctionType::get(b_.getInt32Ty(), {ptr(), ptr(), ptr(), ptr(), ptr()}, false));
    b_.CreateRet(b_.CreateCall(run, {const_cast<GlobalVariable*>(table), inputs, scalars, outputs, null()}));
  }

  LLVMContext& context_;
  std::unique_ptr<Module> module_;
  IRBuilder<> b_;
  const Built& program_;
  const lower::Lowered& l_;
  const Interface& interface_;
  ConstantMemory memory_;
};

// The files of the C library that this process uses: linking against them gives the library the right versions of their
// symbols.
std::vector<std::string> system_libraries() {
  std::vector<std::string> out;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        const std::string file = fs::path(info->dlpi_name).filename().string();
        if (file.starts_with("libc.so.") || file.starts_with("libm.so."))
          static_cast<std::vector<std::string>*>(to)->push_back(info->dlpi_name);
        return 0;
      },
      &out);
  return out;
}

Diagnostics write(const fs::path& path, const void* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) return {diagnose(Code::file_unwritable, path.string(), "the disk may be full")};
  return {};
}

}  // namespace

int64_t library_constant_bytes(const Built& program) {
  const lower::Lowered& l = program.lowered();
  int64_t total = l.packed_bytes;
  for (size_t i = 0; i < l.constants.size(); ++i)
    if (l.constant_read[i]) total += bytes_of(l.constants[i]);
  return total;
}

Diagnostics write_library(const Built& program, const Constants* constants, const Interface& interface,
                          const std::string& path) {
  CHECK(constants || program.lowered().constants.empty(), "the constants are not bound");
  auto machine = target_machine(program.target());
  if (!machine) return machine.errors();
  LLVMContext context;
  std::unique_ptr<Module> module = Glue(context, program, constants, interface).make();
  module->setTargetTriple((*machine)->getTargetTriple().str());
  module->setDataLayout((*machine)->createDataLayout());
  auto glue = generate(*module, **machine, CodeGenFileType::ObjectFile);
  if (!glue) return glue.errors();

  const std::vector<uint8_t>& kernels = program.object();
  struct Object {
    const char* suffix;
    const void* data;
    size_t bytes;
  };
  const std::string name = c_identifier(interface.name);
  const std::string versions =
      fmt::format("{{ global: {0}; {0}_run; {0}_set_threads; {0}_release; {0}_error; local: *; }};\n", name);
  const Object objects[] = {
      {".kernels.o", kernels.data(), kernels.size()},
      {".glue.o", glue->data(), glue->size()},
      {".runtime.o", cleave_aot_runtime_begin, static_cast<size_t>(cleave_aot_runtime_end - cleave_aot_runtime_begin)},
      {".helpers.o", cleave_aot_helpers_begin, static_cast<size_t>(cleave_aot_helpers_end - cleave_aot_helpers_begin)},
      {".versions", versions.data(), versions.size()}};
  std::vector<std::string> words = {"-shared",
                                    "--gc-sections",
                                    "-z",
                                    "relro",
                                    "-z",
                                    "now",
                                    "--hash-style=gnu",
                                    "--build-id=none",
                                    "--strip-debug",
                                    "-z",
                                    "noexecstack",
                                    "--threads=1",
                                    "-soname",
                                    fs::path(path).filename().string(),
                                    "-o",
                                    path};
  Diagnostics bad;
  for (const Object& o : objects) {
    if (bad.empty()) bad = write(path + o.suffix, o.data, o.bytes);
    words.push_back(std::string(o.suffix) == ".versions" ? "--version-script=" + path + o.suffix : path + o.suffix);
  }
  for (const std::string& file : system_libraries()) words.push_back(file);
  if (bad.empty()) bad = link(words);
  std::error_code ignored;
  for (const Object& o : objects) fs::remove(path + o.suffix, ignored);
  return bad;
}

}  // namespace cleave::jit
