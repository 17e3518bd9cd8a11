#include "driver/compile.hpp"

#include <algorithm>

#include "base/codes.hpp"
#include "driver/object_cache.hpp"
#include "driver/options.hpp"

namespace cleave::driver {

namespace {

// Views of the program's arguments; positions that it does not use may be missing at the end. Constants have no extents
// that depend on dims.
std::vector<jit::TensorView> views(const std::vector<lower::Argument>& arguments, std::span<void* const> data,
                                   const lower::Lowered& l, std::span<const int64_t> extents) {
  std::vector<jit::TensorView> out;
  for (size_t i = 0; i < arguments.size(); ++i)
    out.push_back(
        {data[i], arguments[i].dtype, extents.empty() ? arguments[i].shape : l.shape(arguments[i], extents), {}});
  return out;
}

Diagnostics too_few(const char* what, size_t has, size_t given) {
  return {diagnose(Code::bad_call, fmt::format("{} {} were given, the program has {}", given, what, has))};
}

}  // namespace

Diagnostics CompiledProgram::run(const tune::Call& call, const jit::RunOptions& options) {
  const lower::Lowered& l = built_.lowered();
  if (call.inputs.size() < l.inputs.size()) return too_few("inputs", l.inputs.size(), call.inputs.size());
  if (call.outputs.size() < l.outputs.size()) return too_few("outputs", l.outputs.size(), call.outputs.size());
  if (call.scalars.size() < static_cast<size_t>(l.scalars))
    return too_few("scalars", static_cast<size_t>(l.scalars), call.scalars.size());
  std::vector<void*> inputs;
  for (const void* p : call.inputs) inputs.push_back(const_cast<void*>(p));
  return built_.run(views(l.inputs, inputs, l, extents_), std::span(call.scalars).first(static_cast<size_t>(l.scalars)),
                    views(l.outputs, call.outputs, l, extents_), constants_, options);
}

Diagnostics CompiledProgram::set_extents(std::vector<int64_t> extents) {
  const auto bytes = built_.workspace_bytes(extents);
  if (!bytes) return bytes.errors();
  if (*bytes > tune::max_data_bytes()) return {diagnose(Code::data_too_large, *bytes, tune::max_data_bytes())};
  extents_ = std::move(extents);
  if (workspace_.size() < *bytes || workspace_.size() == 0) workspace_ = runtime::Buffer(std::max<int64_t>(64, *bytes));
  return {};
}

Diagnostics CompiledProgram::set_extents(const std::map<std::string, int64_t>& values) {
  const lower::Lowered& l = built_.lowered();
  std::vector<int64_t> extents;
  for (const sym::Expr d : l.dims) {
    const std::string& name = l.syms->symbol_name(d);
    const auto it = values.find(name);
    if (it == values.end()) return {diagnose(Code::unbound_dim, name, name)};
    extents.push_back(it->second);
  }
  return set_extents(std::move(extents));
}

Diagnostics CompiledProgram::run(const tune::Call& call, Executor& executor) {
  jit::RunOptions o;
  o.executor = &executor;
  o.workspace = workspace_.data();
  o.extents = extents_;
  return run(call, o);
}

std::vector<double> CompiledProgram::kernel_seconds(const tune::Call& call) {
  std::vector<double> best;
  for (int round = 0; round < 5; ++round) {
    std::vector<double> seconds;
    jit::RunOptions o;
    o.workspace = workspace_.data();
    o.extents = extents_;
    o.machine.launch_seconds = &seconds;
    if (!run(call, o).empty()) return {};
    if (best.empty()) best = seconds;
    for (size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  // A launch that zeroes tickets is no kernel.
  if (best.size() > kernel_names_.size()) best.erase(best.begin());
  return best;
}

jit::BuildOptions build_options(const Machine& machine) {
  jit::BuildOptions o;
  o.machine = machine;
  // A processor that has not what the machine has runs it as well as it can: wide vectors in pieces.
  if (auto target = jit::cross_target(machine.isa)) o.code.target = std::move(*target);
  return o;
}

std::string code_key(const Machine& machine) {
  return fmt::format("cleave {}|{}|{} {} {}", version(), jit::cache_key(build_options(machine).code), name(machine.isa),
                     machine.vector_bytes, machine.vector_registers);
}

Result<std::shared_ptr<CompiledProgram>> compile(const tile::Program& program, std::span<const tune::Array> constants,
                                                 const Machine& machine, std::vector<uint8_t> object) {
  auto out = std::make_shared<CompiledProgram>();
  TRY_ASSIGN(out->built_, jit::build(program, build_options(machine), std::move(object)));
  for (const tile::Kernel& k : program.kernels)
    if (!k.once) out->kernel_names_.push_back(k.name);
  const lower::Lowered& l = out->built_.lowered();
  if (constants.size() < l.constants.size()) return too_few("constants", l.constants.size(), constants.size());
  std::vector<void*> data;
  for (const tune::Array& a : constants) data.push_back(const_cast<void*>(a.data.data()));
  if (!l.constants.empty() || l.packed_bytes > 0) {
    TRY_ASSIGN(out->constants_, out->built_.bind_constants(views(l.constants, data, l, {})));
  }
  std::vector<int64_t> typical;
  for (const sym::Expr d : l.dims) typical.push_back(l.syms->typical(d));
  if (Diagnostics bad = out->set_extents(std::move(typical)); !bad.empty()) return bad;
  return out;
}

Result<std::shared_ptr<CompiledProgram>> compile(const tile::Program& program, std::span<const tune::Array> constants,
                                                 const Machine& machine, const ObjectCache& cache) {
  const std::string key = cache.key(program, machine);
  if (std::vector<uint8_t> object = cache.find(key); !object.empty())
    if (auto loaded = compile(program, constants, machine, std::move(object))) return loaded;
  TRY_ASSIGN(std::shared_ptr<CompiledProgram> out, compile(program, constants, machine));
  cache.keep(key, out->built().object());
  return out;
}

}  // namespace cleave::driver
