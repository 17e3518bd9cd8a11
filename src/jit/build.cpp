#include "jit/build.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/codes.hpp"
#include "runtime/timing.hpp"

namespace cleave::jit {

struct Built::Impl {
  lower::Lowered lowered;
  Options code;
  CompiledModule compiled;
  std::optional<runtime::Executable> once, main;
  double seconds = 0;
};

class Constants {
 public:
  const void* program = nullptr;        // of which Built
  std::vector<void*> data;              // of each constant, dense
  std::vector<runtime::Buffer> copies;  // of those that were not
  runtime::Buffer packed;
};

namespace {

using lower::Argument;

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}

std::string show(const std::vector<int64_t>& shape) {
  std::string s;
  for (const int64_t e : shape) s += fmt::format("{}{}", s.empty() ? "" : ", ", e);
  return "[" + s + "]";
}

bool dense(const TensorView& t) {
  if (t.strides.empty()) return true;
  int64_t step = 1;
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] != 1 && t.strides[i] != step) return false;
    step *= t.shape[i];
  }
  return true;
}

// Copies between a tensor, which may be strided or not aligned, and dense memory, row by row.
void copy(const TensorView& t, std::byte* packed, bool to_packed) {
  const int64_t size = byte_size(t.dtype), rank = static_cast<int64_t>(t.shape.size());
  const int64_t total = elements(t.shape);
  if (total == 0) return;
  if (dense(t)) {
    void* to = to_packed ? packed : t.data;
    std::memcpy(to, to_packed ? t.data : packed, static_cast<size_t>(total * size));
    return;
  }
  const int64_t inner = rank == 0 ? 1 : t.shape.back(), step = rank == 0 ? 0 : t.strides.back();
  std::vector<int64_t> index(static_cast<size_t>(rank));
  for (int64_t done = 0; done < total; done += inner) {
    std::byte* p = static_cast<std::byte*>(t.data);
    for (int64_t i = 0; i + 1 < rank; ++i)
      p += index[static_cast<size_t>(i)] * t.strides[static_cast<size_t>(i)] * size;
    for (int64_t j = 0; j < inner; ++j, packed += size, p += step * size)
      if (to_packed)
        std::memcpy(packed, p, static_cast<size_t>(size));
      else
        std::memcpy(p, packed, static_cast<size_t>(size));
    for (int64_t i = rank - 2; i >= 0 && ++index[static_cast<size_t>(i)] == t.shape[static_cast<size_t>(i)]; --i)
      index[static_cast<size_t>(i)] = 0;
  }
}

// Values of the dims of one call.
using Values = std::unordered_map<sym::Expr, int64_t>;

constexpr int64_t kMaxBytes = int64_t{1} << 42;  // of a call's workspace, of a worker's scratch

std::vector<int64_t> shape_of(const Argument& a, const lower::Lowered& l, const Values& values) {
  if (l.dims.empty()) return a.shape;
  std::vector<int64_t> out;
  for (const sym::Expr e : a.extents) out.push_back(l.syms->evaluate(e, values));
  return out;
}

Diagnostics check_range(const lower::Lowered& l, std::span<const int64_t> extents) {
  if (extents.size() != l.dims.size())
    return {diagnose(Code::bad_call, fmt::format("{} extents are given, the program has {} dimensions", extents.size(),
                                                 l.dims.size()))};
  for (size_t i = 0; i < extents.size(); ++i) {
    const sym::Interval r = l.syms->symbol_range(l.dims[i]);
    if (extents[i] < r.lo || extents[i] > r.hi)
      return {diagnose(Code::dim_out_of_range, l.syms->symbol_name(l.dims[i]), extents[i], r.lo, r.hi)};
  }
  return {};
}

Values values_of(const lower::Lowered& l, const int64_t* extents) {
  Values out;
  for (size_t i = 0; i < l.dims.size(); ++i) out[l.dims[i]] = extents[i];
  return out;
}

void check(std::span<const TensorView> given, const std::vector<Argument>& wanted, const char* what,
           const lower::Lowered& l, const Values& values, Diagnostics& bad) {
  if (given.size() != wanted.size()) {
    bad.push_back(diagnose(Code::bad_call,
                           fmt::format("{} {} were given, the program has {}", given.size(), what, wanted.size())));
    return;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const TensorView& t = given[i];
    const Argument& a = wanted[i];
    if (a.name.empty()) continue;  // the program does not use this position
    if (t.dtype != a.dtype)
      bad.push_back(diagnose(
          Code::bad_call, fmt::format("`{}` has the dtype {}, {} is expected", a.name, name(t.dtype), name(a.dtype))));
    else if (const std::vector<int64_t> shape = shape_of(a, l, values); t.shape != shape)
      bad.push_back(diagnose(Code::bad_call,
                             fmt::format("`{}` has the shape {}, {} is expected", a.name, show(t.shape), show(shape))));
    else if (!t.strides.empty() && t.strides.size() != t.shape.size())
      bad.push_back(diagnose(Code::bad_call,
                             fmt::format("`{}` has {} strides for {} axes", a.name, t.strides.size(), t.shape.size())));
    else if (!t.data && elements(t.shape) > 0)
      bad.push_back(diagnose(Code::bad_call, fmt::format("`{}` has no memory", a.name)));
  }
}

bool aligned(const TensorView& t) {
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(byte_size(t.dtype)) == 0;
}

// The tensor's own memory when it is dense and aligned to its elements, else a copy.
void* as_dense(const TensorView& t, const Argument& a, bool read, std::vector<runtime::Buffer>& copies,
               std::vector<std::string>* names) {
  if (a.name.empty() || (dense(t) && aligned(t))) return t.data;
  copies.emplace_back(elements(t.shape) * byte_size(t.dtype));
  if (read) copy(t, static_cast<std::byte*>(copies.back().data()), true);
  if (names) names->push_back(a.name);
  return copies.back().data();
}

Executor& executor_of(const RunOptions& options, SerialExecutor& serial) {
  return options.executor ? *options.executor : static_cast<Executor&>(serial);
}

Result<std::vector<runtime::Launch>> launches(const lower::Lowered& l, const CompiledModule& module, bool once) {
  std::vector<runtime::Launch> out;
  for (const lower::Launch& x : l.launches) {
    if (x.once != once) continue;
    TRY_ASSIGN(const CleaveKernel kernel, module.function(x.function));
    runtime::Launch launch{x.function, kernel, x.tasks, {}, x.scratch_bytes, {}};
    if (!l.dims.empty() && !once) {  // dims have no part in what runs once
      // `l` lives as long as the executable.
      launch.count = [&l, n = x.tasks_of](const int64_t* e) { return l.syms->evaluate(n, values_of(l, e)); };
      launch.scratch = [&l, n = x.scratch_of](const int64_t* e) { return l.syms->evaluate(n, values_of(l, e)); };
    }
    out.push_back(std::move(launch));
  }
  return out;
}

}  // namespace

Result<Built> build(const tile::Program& program, const BuildOptions& options) { return build(program, options, {}); }

Result<Built> build(const tile::Program& program, const BuildOptions& options, std::vector<uint8_t> object) {
  const double start = runtime::thread_cpu_seconds();
  auto impl = std::make_shared<Built::Impl>();
  impl->code = options.code;
  const Machine machine = options.machine ? *options.machine : with_isa(host_machine(), options.code.target.isa);
  TRY_ASSIGN(impl->lowered, lower::lower(program, machine));
  if (object.empty()) {
    TRY_ASSIGN(impl->compiled, compile(impl->lowered.module, impl->code));
  } else {
    TRY_ASSIGN(impl->compiled, load_object(std::move(object)));
  }
  const auto code = std::make_shared<CompiledModule>(impl->compiled);
  TRY_ASSIGN(auto once, launches(impl->lowered, impl->compiled, true));
  TRY_ASSIGN(auto main, launches(impl->lowered, impl->compiled, false));
  impl->once.emplace(std::move(once), 0, code);
  impl->main.emplace(std::move(main), impl->lowered.workspace_bytes, code);
  if (!impl->lowered.dims.empty())
    impl->main->set_workspace(
        [&l = impl->lowered](const int64_t* e) { return l.syms->evaluate(l.workspace_of, values_of(l, e)); });
  impl->seconds = runtime::thread_cpu_seconds() - start;
  Built out;
  out.impl_ = std::move(impl);
  return out;
}

const lower::Lowered& Built::lowered() const { return impl_->lowered; }
int64_t Built::workspace_bytes() const { return impl_->lowered.workspace_bytes; }
Result<int64_t> Built::workspace_bytes(std::span<const int64_t> extents) const {
  const lower::Lowered& l = impl_->lowered;
  if (Diagnostics bad = check_range(l, extents); !bad.empty()) return bad;
  if (l.dims.empty()) return l.workspace_bytes;
  const Values values = values_of(l, extents.data());
  int64_t bytes = l.syms->evaluate(l.workspace_of, values);
  for (const lower::Launch& x : l.launches)
    if (const int64_t scratch = l.syms->evaluate(x.scratch_of, values); bytes > kMaxBytes || scratch > kMaxBytes)
      return diagnose(Code::bad_call, fmt::format("the memory of the call, {} bytes, is more than the limit of {}",
                                                  std::max(bytes, scratch), kMaxBytes));
  return bytes;
}

Result<std::vector<int64_t>> Built::extents_of(std::span<const TensorView> inputs,
                                               std::span<const TensorView> outputs) const {
  const lower::Lowered& l = impl_->lowered;
  std::vector<int64_t> out(l.dims.size(), -1);
  // A dim follows from an axis that is as long as the dim, or a multiple of it and a constant longer.
  const auto look = [&](std::span<const TensorView> given, const std::vector<Argument>& arguments) {
    for (size_t i = 0; i < std::min(given.size(), arguments.size()); ++i)
      for (size_t a = 0; a < std::min(given[i].shape.size(), arguments[i].extents.size()); ++a)
        for (size_t d = 0; d < l.dims.size(); ++d) {
          if (out[d] >= 0) continue;
          int64_t factor = 0, rest = 0;
          bool alone = true;
          for (const sym::Pool::Term& t : l.syms->terms(arguments[i].extents[a])) {
            if (t.atoms.empty())
              rest = t.coefficient;
            else if (t.atoms.size() == 1 && t.atoms[0] == l.dims[d])
              factor = t.coefficient;
            else
              alone = false;
          }
          if (!alone || factor <= 0) continue;
          const int64_t n = given[i].shape[a] - rest;
          if (n >= 0 && n % factor == 0) out[d] = n / factor;
        }
  };
  look(inputs, l.inputs);
  look(outputs, l.outputs);
  for (size_t d = 0; d < out.size(); ++d)
    if (out[d] < 0)
      return diagnose(Code::bad_call, fmt::format("the value of `{}` does not follow from the shapes of the tensors",
                                                  l.syms->symbol_name(l.dims[d])));
  return out;
}

double Built::compile_seconds() const { return impl_->seconds; }
std::string Built::vec_text() const { return vec::print(impl_->lowered.module); }
Result<std::string> Built::llvm_text() const { return jit::llvm_text(impl_->lowered.module, impl_->code); }
Result<std::string> Built::asm_text() const { return jit::asm_text(impl_->lowered.module, impl_->code); }
const std::vector<uint8_t>& Built::object() const { return impl_->compiled.object(); }
const Target& Built::target() const { return impl_->code.target; }

Result<std::shared_ptr<const Constants>> Built::bind_constants(std::span<const TensorView> constants,
                                                               const RunOptions& options) const {
  const lower::Lowered& l = impl_->lowered;
  Diagnostics bad;
  check(constants, l.constants, "constants", l, {}, bad);
  if (!bad.empty()) return bad;
  auto out = std::make_shared<Constants>();
  out->program = impl_.get();
  for (size_t i = 0; i < constants.size(); ++i)
    out->data.push_back(as_dense(constants[i], l.constants[i], true, out->copies, options.copied));
  out->packed = runtime::Buffer(l.packed_bytes);
  std::vector<CleaveTensor> tensors(static_cast<size_t>(l.packed_tensor()) + 1);
  for (size_t i = 0; i < constants.size(); ++i) tensors[static_cast<size_t>(l.constant_tensor(i))].data = out->data[i];
  tensors.back().data = out->packed.data();
  const CleaveCall call{tensors.data(), nullptr, nullptr, nullptr};
  SerialExecutor serial;
  if (Diagnostics problems = impl_->once->run(call, executor_of(options, serial), options.machine); !problems.empty())
    return problems;
  return std::shared_ptr<const Constants>(std::move(out));
}

ConstantMemory memory_of(const Constants& constants) {
  return {{constants.data.begin(), constants.data.end()}, constants.packed.data()};
}

Diagnostics Built::run(std::span<const TensorView> inputs, std::span<const double> scalars,
                       std::span<const TensorView> outputs, const std::shared_ptr<const Constants>& constants,
                       const RunOptions& options) const {
  const lower::Lowered& l = impl_->lowered;
  std::vector<int64_t> extents;
  if (options.extents) {
    extents = *options.extents;
  } else if (!l.dims.empty()) {
    auto known = extents_of(inputs, outputs);
    if (!known) return known.errors();
    extents = std::move(*known);
  }
  const auto workspace_size = workspace_bytes(extents);
  if (!workspace_size) return workspace_size.errors();
  const Values values = values_of(l, extents.data());
  Diagnostics bad;
  check(inputs, l.inputs, "inputs", l, values, bad);
  check(outputs, l.outputs, "outputs", l, values, bad);
  if (static_cast<int>(scalars.size()) != l.scalars)
    bad.push_back(
        diagnose(Code::bad_call, fmt::format("{} scalars were given, the program has {}", scalars.size(), l.scalars)));
  if (!constants && (!l.constants.empty() || l.packed_bytes > 0))
    bad.push_back(diagnose(Code::bad_call, "the constants are not bound"));
  if (constants && constants->program != impl_.get())
    bad.push_back(diagnose(Code::bad_call, "the constants are another program's"));
  if (!bad.empty()) return bad;

  std::vector<runtime::Buffer> copies;
  copies.reserve(inputs.size() + outputs.size());
  std::vector<CleaveTensor> tensors(static_cast<size_t>(l.packed_tensor()) + 1);
  for (size_t i = 0; i < inputs.size(); ++i)
    tensors[static_cast<size_t>(l.input_tensor(i))].data =
        as_dense(inputs[i], l.inputs[i], true, copies, options.copied);
  for (size_t i = 0; i < outputs.size(); ++i)
    // What a program leaves alone in an output keeps its value.
    tensors[static_cast<size_t>(l.output_tensor(i))].data =
        as_dense(outputs[i], l.outputs[i], true, copies, options.copied);
  if (constants) {
    for (size_t i = 0; i < constants->data.size(); ++i)
      tensors[static_cast<size_t>(l.constant_tensor(i))].data = constants->data[i];
    tensors.back().data = const_cast<void*>(constants->packed.data());
  }
  runtime::Buffer workspace;
  if (!options.workspace && *workspace_size > 0) workspace = runtime::Buffer(*workspace_size);
  const CleaveCall call{tensors.data(), extents.data(), scalars.data(),
                        options.workspace ? options.workspace : workspace.data()};
  SerialExecutor serial;
  if (Diagnostics problems = impl_->main->run(call, executor_of(options, serial), options.machine); !problems.empty())
    return problems;
  for (size_t i = 0; i < outputs.size(); ++i) {
    void* data = tensors[static_cast<size_t>(l.output_tensor(i))].data;
    if (data != outputs[i].data) copy(outputs[i], static_cast<std::byte*>(data), false);
  }
  return {};
}

}  // namespace cleave::jit
