#include <llvm/ADT/SmallVector.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>

#include <mutex>

#include "base/codes.hpp"
#include "jit/emit.hpp"
#include "jit/target_machine.hpp"
#include "vec/expand_math.hpp"

namespace cleave::jit {

namespace {

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
#if LLVM_HAS_AARCH64_TARGET && !defined(__aarch64__)
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
#endif
  });
}

std::string host_features() {
  std::string out;
  const bool matrix_unit = host_has_matrix_unit();
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    if (matrix_unit || !feature.getKey().starts_with("amx"))
      out += fmt::format("{}{}{}", out.empty() ? "" : ",", feature.getValue() ? '+' : '-', feature.getKey().str());
  return out;
}

// Common subexpressions and loop invariants only.
void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
  for (llvm::Function& f : module)
    if (!f.isDeclaration()) passes.run(f, functions);
}

struct Emitted {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
};

Result<Emitted> emit(const vec::Module& module, const Options& options) {
  Diagnostics problems = vec::verify(module);
  if (!problems.empty()) return problems;
  Emitted out;
  TRY_ASSIGN(out.machine, target_machine(options.target));
  out.context = std::make_unique<llvm::LLVMContext>();
  out.module = emit_llvm(options.expand_math ? vec::expand_math(module) : module, options.target, *out.context);
  out.module->setTargetTriple(out.machine->getTargetTriple().str());
  out.module->setDataLayout(out.machine->createDataLayout());
  if (options.optimize) optimize(*out.module, *out.machine);
  return out;
}

Result<llvm::SmallVector<char, 0>> generate(const vec::Module& module, const Options& options,
                                            llvm::CodeGenFileType kind) {
  TRY_ASSIGN(Emitted emitted, emit(module, options));
  return jit::generate(*emitted.module, *emitted.machine, kind);
}

// The upper halves of the vector registers are zero when code of the C library runs, and when compiled code returns:
// without AVX encodings a call is ten times as slow otherwise. LLVM sees to it where registers of 256 bits are named;
// conversions that read as much from memory (vcvtps2phx) name none and leave the halves in use all the same.
void clear_upper_halves(llvm::Module& module, const llvm::TargetMachine& machine) {
  if (!machine.getTargetTriple().isX86() || !machine.getMCSubtargetInfo()->checkFeatures("+avx")) return;
  std::vector<llvm::Instruction*> before;
  for (llvm::Function& f : module)
    for (llvm::BasicBlock& block : f)
      for (llvm::Instruction& i : block) {
        const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
        const llvm::Function* to = call ? call->getCalledFunction() : nullptr;
        const bool out = to && to->isDeclaration() && !to->isIntrinsic();
        if (out || (llvm::isa<llvm::ReturnInst>(i) && !f.hasLocalLinkage())) before.push_back(&i);
      }
  llvm::Function* clear = llvm::Intrinsic::getDeclaration(&module, llvm::Intrinsic::x86_avx_vzeroupper);
  for (llvm::Instruction* i : before) llvm::IRBuilder<>(i).CreateCall(clear);
}

std::string message(llvm::Error error) { return llvm::toString(std::move(error)); }

}  // namespace

Result<std::unique_ptr<llvm::TargetMachine>> target_machine(const Target& target) {
  initialize_llvm();
  const std::string triple = target.runs_here() ? llvm::sys::getProcessTriple() : target.triple;
  std::string problem;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!t) return diagnose(Code::codegen_failed, problem);
  llvm::TargetOptions options;
  options.MCOptions.AsmVerbose = true;
  std::unique_ptr<llvm::TargetMachine> machine(t->createTargetMachine(triple, target.cpu, target.features, options,
                                                                      llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                      llvm::CodeGenOptLevel::Default, true));
  if (!machine) return diagnose(Code::codegen_failed, "there is no target machine for " + triple);
  return machine;
}

Result<llvm::SmallVector<char, 0>> generate(llvm::Module& module, llvm::TargetMachine& machine,
                                            llvm::CodeGenFileType kind) {
  clear_upper_halves(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, kind))
    return diagnose(Code::codegen_failed, "the target machine emits no code of this kind");
  passes.run(module);
  return bytes;
}

struct CompiledModule::Impl {
  std::vector<uint8_t> object;
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

Target host_target() {
  initialize_llvm();
  Target t;
  t.isa = host_isa();
  t.vector_bytes = with_isa({}, t.isa).vector_bytes;
  t.cpu = llvm::sys::getHostCPUName().str();
  t.features = host_features();
  return t;
}

Result<Target> target_for(Isa isa) {
  const Target host = host_target();
  if (isa == host.isa) return host;
  Target t;
  t.isa = isa;
  t.vector_bytes = with_isa({}, isa).vector_bytes;
  if (isa == Isa::avx2 && host.isa == Isa::avx512) {
    t.cpu = "x86-64-v3";
    t.tune = "znver3";  // its model has no false loop-carried spills at 6x16, haswell's has (cpu.md 1.3)
    return t;
  }
  if (isa == Isa::generic && (host.isa == Isa::avx2 || host.isa == Isa::avx512)) {
    t.cpu = "x86-64-v2";
    return t;
  }
  return diagnose(Code::unsupported_target, name(isa));
}

Result<Target> cross_target(Isa isa) {
  auto here = target_for(isa);
  if (here || isa != Isa::neon) return here;
  Target t;
  t.isa = isa;
  t.vector_bytes = with_isa({}, isa).vector_bytes;
  t.cpu = "neoverse-n1";   // Armv8.2: the servers since 2019; their successors and Apple's processors run its code
  t.tune = "neoverse-v2";  // no spills in register tiles, where the model of n1 has some at 6x4
  t.triple = "aarch64-unknown-linux-gnu";
  return t;
}

std::string Target::key() const { return fmt::format("{}|{}|{}|{}|{}", name(isa), cpu, tune, features, triple); }
std::string cache_key(const Options& o) {
  return fmt::format("llvm {}|{}|math {}|optimize {}", LLVM_VERSION_STRING, o.target.key(), o.expand_math, o.optimize);
}

Result<CompiledModule> compile(const vec::Module& module, const Options& options) {
  if (!options.target.runs_here()) return diagnose(Code::unsupported_target, name(options.target.isa));
  TRY_ASSIGN(auto bytes, object_code(module, options));
  return load_object(std::move(bytes));
}

Result<std::vector<uint8_t>> object_code(const vec::Module& module, const Options& options) {
  TRY_ASSIGN(auto bytes, generate(module, options, llvm::CodeGenFileType::ObjectFile));
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

Result<CompiledModule> load_object(std::vector<uint8_t> object) {
  initialize_llvm();
  auto impl = std::make_shared<CompiledModule::Impl>();
  impl->object = std::move(object);
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) return diagnose(Code::codegen_failed, message(jit.takeError()));
  impl->jit = std::move(*jit);
  auto& session = impl->jit->getExecutionSession();
  session.setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });  // lookups return their errors
  auto& library = impl->jit->getMainJITDylib();

  llvm::orc::SymbolMap helpers;
  for (const FnInfo& f : all_fns())
    for (const bool integer : {false, true})
      helpers[impl->jit->mangleAndIntern(helper_symbol(f.fn, integer))] = {
          llvm::orc::ExecutorAddr::fromPtr(helper_address(f.fn, integer)), llvm::JITSymbolFlags::Exported};
  if (auto e = library.define(llvm::orc::absoluteSymbols(std::move(helpers))))
    return diagnose(Code::codegen_failed, message(std::move(e)));
  auto process =
      llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(impl->jit->getDataLayout().getGlobalPrefix());
  if (!process) return diagnose(Code::codegen_failed, message(process.takeError()));
  library.addGenerator(std::move(*process));

  const llvm::StringRef bytes(reinterpret_cast<const char*>(impl->object.data()), impl->object.size());
  auto parsed = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(bytes, "cleave"));
  if (!parsed) return diagnose(Code::bad_object, message(parsed.takeError()));
  if ((*parsed)->getArch() != impl->jit->getTargetTriple().getArch())
    return diagnose(Code::bad_object,
                    fmt::format("it is code for {}", llvm::Triple::getArchTypeName((*parsed)->getArch()).str()));
  if (auto e = impl->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(bytes, "cleave")))
    return diagnose(Code::bad_object, message(std::move(e)));
  CompiledModule out;
  out.impl_ = std::move(impl);
  return out;
}

Result<CleaveKernel> CompiledModule::function(std::string_view name) const {
  auto symbol = impl_->jit->lookup(kernel_symbol(name));
  if (!symbol) {
    llvm::consumeError(symbol.takeError());
    return diagnose(Code::missing_function, name);
  }
  return symbol->toPtr<CleaveKernel>();
}

const std::vector<uint8_t>& CompiledModule::object() const { return impl_->object; }

Result<std::string> llvm_text(const vec::Module& module, const Options& options) {
  TRY_ASSIGN(Emitted emitted, emit(module, options));
  std::string text;
  llvm::raw_string_ostream stream(text);
  emitted.module->print(stream, nullptr);
  return text;
}

Result<std::string> asm_text(const vec::Module& module, const Options& options) {
  TRY_ASSIGN(auto bytes, generate(module, options, llvm::CodeGenFileType::AssemblyFile));
  return std::string(bytes.begin(), bytes.end());
}

// The code generator comments each basic block with its loop ("Inner Loop Header", "in Loop: Header=BB0_2") and each
// stack access of the register allocator ("16-byte Spill", "Folded Reload"); on arm64 also the registers that a
// function saves for its caller, outside of loops. Blocks that are only fallen into have no label ("# %bb.0:", "//
// %bb.0:").
SpillCount count_spills(std::string_view text) {
  SpillCount out;
  std::vector<std::string_view> inner_headers;
  std::string_view label;
  bool inner = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto has = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
    const size_t bb = line.find("BB");
    if (line.starts_with(".LBB") || line.starts_with("# %bb.") || line.starts_with("// %bb.")) {
      inner = false;
      label = line.starts_with(".LBB") ? line.substr(bb, line.find(':') - bb) : std::string_view();
    }
    if (has("Inner Loop Header")) {
      inner = true;
      inner_headers.push_back(label);
    } else if (const size_t at = line.find("in Loop: Header="); at != std::string_view::npos) {
      const std::string_view rest = line.substr(at + 16);
      const std::string_view header = rest.substr(0, rest.find(' '));
      for (const std::string_view h : inner_headers) inner = inner || h == header;
    }
    if (has(" Spill") || has(" Reload")) {
      ++out.total;
      out.innermost += inner;
    }
  }
  return out;
}

}  // namespace cleave::jit
