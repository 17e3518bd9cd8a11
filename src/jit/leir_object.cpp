#include "jit/leir_object.hpp"

#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>

#include "jit/emit.hpp"
#include "jit/target_machine.hpp"

namespace cleave::jit {

Result<std::vector<uint8_t>> leir_object(llvm::Module& module, const LeirOptions& o, double evaluations) {
  TRY_ASSIGN(const auto machine, target_machine(o.target));
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  // Without a processor's name on the functions, vectors are as wide as the oldest one has them.
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", o.target.cpu);
    f.addFnAttr("target-features", o.target.features);
    // No value needs vectors of 512 bits: where the processor prefers 256, as clang does, neighbouring addresses are
    // not put into wider ones.
    f.addFnAttr("min-legal-vector-width", "0");
  }
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.SLPVectorization = true;  // off unless asked for
  llvm::PassBuilder builder(machine.get(), tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (o.quick)
    llvm::cantFail(builder.parsePassPipeline(passes, "function(sroa,early-cse,simplifycfg,loop-mssa(licm))"));
  else {
    // Simplified once before, as clang does with a function that it inlines: conditions that become invariant when
    // inner loops are unrolled are then taken out of outer ones.
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(
        builder.buildFunctionSimplificationPipeline(llvm::OptimizationLevel::O3, llvm::ThinOrFullLTOPhase::None)));
    passes.addPass(builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3));
  }
  passes.run(module, modules);
  if (o.quick) {
    const bool selects = evaluations > 500.0 * module.getInstructionCount();
    machine->setOptLevel(selects ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::None);
  }
  TRY_ASSIGN(const auto bytes, generate(module, *machine, llvm::CodeGenFileType::ObjectFile));
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

}  // namespace cleave::jit
