// Compiled programs on the caller's buffers.
#include <algorithm>

#include "api/internal.hpp"
#include "base/codes.hpp"
#include "driver/artefact.hpp"
#include "driver/compile.hpp"

namespace cleave {

using api::external;
using api::guarded;
using api::internal;
using api::raise;
using api::take;

namespace {

struct Signature {
  std::string name;
  DType dtype;
  std::vector<int64_t> extents;
};

// Code for one set of extents, with its constants bound.
class Compiled {
 public:
  Compiled(const graph::Graph& g, const tile::Program& program, const Machine& machine, std::vector<uint8_t> object)
      : built_(take(jit::build(program, driver::build_options(machine), std::move(object)))) {
    for (const graph::ValueId v : g.leaves(graph::Op::input))
      inputs.push_back({g.producer(v).attributes.get<std::string>("name"), g.type(v).dtype, g.extents(v)});
    for (const graph::Output& o : g.outputs()) outputs.push_back({o.name, g.type(o.value).dtype, g.extents(o.value)});
    scalars = g.leaves(graph::Op::scalar).size();
    bind_constants(g);
  }

  void run(std::span<const View> in, std::span<const View> out, std::span<const double> numbers,
           Executor* executor) const {
    const lower::Lowered& l = built_.lowered();
    // Positions that the program does not read may be missing at the end.
    std::vector<jit::TensorView> reads, writes;
    for (size_t i = 0; i < l.inputs.size(); ++i) reads.push_back(view(in[i]));
    for (size_t i = 0; i < l.outputs.size(); ++i) writes.push_back(view(out[i]));
    runtime::Buffer workspace = take_workspace();
    jit::RunOptions o;
    o.executor = executor;
    o.workspace = workspace.data();
    const Diagnostics bad = built_.run(reads, numbers.first(static_cast<size_t>(l.scalars)), writes, constants_, o);
    give_back(std::move(workspace));
    if (!bad.empty()) raise(bad);
  }

  std::vector<Signature> inputs, outputs;
  size_t scalars = 0;

 private:
  static jit::TensorView view(const View& v) { return {v.data, internal(v.type), v.shape, v.strides}; }

  void bind_constants(const graph::Graph& g) {
    const lower::Lowered& l = built_.lowered();
    const std::vector<graph::ValueId> leaves = g.leaves(graph::Op::constant);
    std::vector<jit::TensorView> views;
    for (size_t i = 0; i < std::min(leaves.size(), l.constants.size()); ++i) {
      const auto& data = g.producer(leaves[i]).attributes.get<graph::ConstantData>("data");
      const DType dtype = g.type(leaves[i]).dtype;
      const std::vector<int64_t> extents = g.extents(leaves[i]);
      // The bytes of a model's weights are shared with the graph, recipes are written out.
      std::shared_ptr<const std::vector<std::byte>> bytes = data.bytes;
      if (data.kind != graph::ConstantData::Kind::bytes || !bytes)
        bytes =
            std::make_shared<const std::vector<std::byte>>(graph::materialise(data, dtype, oracle::product(extents)));
      kept_.push_back(bytes);
      views.push_back({const_cast<std::byte*>(bytes->data()), dtype, extents, {}});
    }
    if (!l.constants.empty() || l.packed_bytes > 0) constants_ = take(built_.bind_constants(views));
  }

  // Workspaces are kept for later calls; calls that overlap have one each.
  runtime::Buffer take_workspace() const {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        runtime::Buffer out = std::move(free_.back());
        free_.pop_back();
        return out;
      }
    }
    return runtime::Buffer(std::max<int64_t>(64, built_.workspace_bytes()));
  }
  void give_back(runtime::Buffer workspace) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

  jit::Built built_;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> kept_;
  std::shared_ptr<const jit::Constants> constants_;
  mutable std::mutex mutex_;
  mutable std::vector<runtime::Buffer> free_;
};

// The bytes that a view may touch, [low, high); empty views touch none.
struct Range {
  const char* low = nullptr;
  const char* high = nullptr;
  bool overlaps(const Range& other) const { return low < other.high && other.low < high; }
};
Range range_of(const View& v) {
  const int64_t width = size_of(v.type);
  int64_t low = 0, high = 0, dense = 1;
  for (size_t i = v.shape.size(); i-- > 0;) {
    if (v.shape[i] == 0) return {};
    const int64_t reach = (v.strides.empty() ? dense : v.strides[i]) * (v.shape[i] - 1);
    (reach < 0 ? low : high) += reach;
    dense *= v.shape[i];
  }
  const char* at = static_cast<const char*>(v.data);
  return {at + low * width, at + (high + 1) * width};
}

// An output whose elements share memory cannot hold a result.
bool overlaps_itself(const View& v) {
  if (v.strides.empty()) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, extent
  for (size_t i = 0; i < v.shape.size(); ++i) {
    if (v.shape[i] == 0) return false;
    if (v.shape[i] > 1) axes.emplace_back(std::abs(v.strides[i]), v.shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  int64_t reach = 0;
  for (const auto& [stride, extent] : axes) {
    if (stride <= reach) return true;
    reach += stride * (extent - 1);
  }
  return false;
}

void copy_elements(const View& from, const View& to) {
  const int64_t width = size_of(from.type);
  std::vector<int64_t> index(from.shape.size());
  int64_t count = 1;
  for (const int64_t e : from.shape) count *= e;
  const char* source = static_cast<const char*>(from.data);  // dense
  int64_t offset = 0;
  std::vector<int64_t> strides = to.strides.empty() ? oracle::dense_strides(to.shape) : to.strides;
  for (int64_t i = 0; i < count; ++i, source += width) {
    std::copy_n(source, width, static_cast<char*>(to.data) + offset * width);
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < to.shape[axis]) break;
      offset -= strides[axis] * to.shape[axis];
      index[axis] = 0;
    }
  }
}

std::string list(const std::vector<int64_t>& extents) { return fmt::format("[{}]", fmt::join(extents, ", ")); }

// Shapes and types as the code expects them; the errors name the argument.
void check(std::span<const View> given, const std::vector<Signature>& wanted, const char* what) {
  if (given.size() != wanted.size())
    raise(diagnose(Code::bad_call,
                   fmt::format("{} {} were given, the program has {}", given.size(), what, wanted.size())));
  for (size_t i = 0; i < given.size(); ++i) {
    const Signature& s = wanted[i];
    if (internal(given[i].type) != s.dtype)
      raise(diagnose(Code::wrong_input, s.name,
                     fmt::format("it has the type {}, {} is needed", name(given[i].type), name(s.dtype))));
    if (given[i].shape != s.extents)
      raise(diagnose(Code::wrong_input, s.name,
                     fmt::format("it has the shape {}, {} is needed", list(given[i].shape), list(s.extents))));
    if (!given[i].strides.empty() && given[i].strides.size() != given[i].shape.size())
      raise(diagnose(Code::wrong_input, s.name,
                     fmt::format("it has {} strides for {} axes", given[i].strides.size(), given[i].shape.size())));
    if (!given[i].data && oracle::product(s.extents) > 0)
      raise(diagnose(Code::wrong_input, s.name, "it has no memory"));
  }
}

}  // namespace

struct Program::Impl {
  std::shared_ptr<const Graph::Impl> graph;  // that code is made from; null when it is made already
  CompileOptions options;
  std::vector<Argument> inputs, scalars, outputs;
  std::vector<std::string> dims;  // that the inputs of each run give values
  mutable std::mutex mutex;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Compiled>> codes;  // by the values of `dims`

  std::map<std::string, int64_t> values_of(std::span<const std::vector<int64_t>> shapes) const;
  std::shared_ptr<const Compiled> code_for(std::span<const std::vector<int64_t>> shapes) const;
  std::shared_ptr<const Compiled> make(const std::map<std::string, int64_t>& values) const;
};

// An input whose extent is a dimension gives that dimension its value; the rest is checked against the code made.
std::map<std::string, int64_t> Program::Impl::values_of(std::span<const std::vector<int64_t>> shapes) const {
  if (shapes.size() != inputs.size())
    raise(diagnose(Code::bad_call,
                   fmt::format("{} inputs were given, the program has {}", shapes.size(), inputs.size())));
  std::map<std::string, int64_t> values = options.dims;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<Extent>& declared = inputs[i].shape;
    if (shapes[i].size() != declared.size())
      raise(diagnose(Code::wrong_input, inputs[i].name,
                     fmt::format("it has {} axes, {} are needed", shapes[i].size(), declared.size())));
    for (size_t axis = 0; axis < declared.size(); ++axis) {
      if (declared[axis].is_number()) continue;
      if (std::find(dims.begin(), dims.end(), declared[axis].text()) == dims.end()) continue;
      const auto [known, fresh] = values.emplace(declared[axis].text(), shapes[i][axis]);
      if (!fresh && known->second != shapes[i][axis])
        raise(diagnose(Code::wrong_input, inputs[i].name,
                       fmt::format("its axis {} has the extent {}, `{}` is {} already", axis, shapes[i][axis],
                                   declared[axis].text(), known->second)));
    }
  }
  for (const std::string& d : dims)
    if (!values.count(d)) raise(diagnose(Code::unbound_dim, d, d));
  return values;
}

std::shared_ptr<const Compiled> Program::Impl::make(const std::map<std::string, int64_t>& values) const {
  const std::lock_guard pool(graph->mutex);
  driver::Compilation c;
  c.options.threads = options.threads;
  c.options.cache_dir = api::cache_folder(options.cache_directory);
  if (!options.search) c.options.disabled = {"search"};
  for (const auto& [name, value] : values) c.options.dims[name] = {value, value, value};
  c.input.format = driver::Format::graph;
  c.input.graph = graph->graph;
  if (Diagnostics bad = driver::run_passes(c, "schedule", "bind"); !bad.empty()) raise(bad);
  return std::make_shared<const Compiled>(*c.expanded, driver::chosen_candidate(c).program, c.machine,
                                          std::vector<uint8_t>{});
}

std::shared_ptr<const Compiled> Program::Impl::code_for(std::span<const std::vector<int64_t>> shapes) const {
  std::vector<int64_t> key;
  std::map<std::string, int64_t> values;
  if (!dims.empty()) {
    values = values_of(shapes);
    for (const std::string& d : dims) key.push_back(values.at(d));
  } else {
    values = options.dims;
  }
  {
    const std::lock_guard lock(mutex);
    const auto known = codes.find(key);
    if (known != codes.end()) return known->second;
  }
  // Two threads may both make it; the first one's stays.
  std::shared_ptr<const Compiled> fresh = make(values);
  const std::lock_guard lock(mutex);
  return codes.emplace(std::move(key), std::move(fresh)).first->second;
}

Threads::Threads(int count) {
  guarded([&] {
    if (count < 0 || count > 1024)
      raise(diagnose(Code::bad_call, fmt::format("{} is no number of threads (0 to 1024)", count)));
    impl_ = std::make_shared<Impl>(count == 0 ? usable_cores() : count);
  });
}
int Threads::count() const { return impl_->pool.workers(); }

namespace api {

std::shared_ptr<const Program::Impl> program_of(const graph::Graph& g, const tile::Program& program,
                                                const Machine& machine, std::vector<uint8_t> object) {
  auto impl = std::make_shared<Program::Impl>();
  impl->inputs = leaf_arguments(g, graph::Op::input);
  impl->scalars = leaf_arguments(g, graph::Op::scalar);
  impl->outputs = output_arguments(g);
  impl->codes[{}] = std::make_shared<const Compiled>(g, program, machine, std::move(object));
  return impl;
}

}  // namespace api

Program Program::load(const std::string& folder) {
  return guarded([&] {
    driver::Artefact a = take(driver::load_artefact(folder));
    if (!a.program.dims.empty())
      raise(diagnose(Code::not_available,
                     "running an artefact with open dimensions from the library (`cleave run` does)"));
    return Program(api::program_of(a.best, a.program, a.machine, std::move(a.object)));
  });
}

Program Program::compile(const Graph& graph, const CompileOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Impl>();
    impl->options = options;
    impl->graph = graph.shared();
    impl->inputs = graph.inputs();
    impl->scalars = graph.scalars();
    impl->outputs = graph.outputs();
    std::vector<std::string> unknown;
    for (const auto& [name, value] : options.dims) unknown.push_back(name);
    for (const Graph::Dim& d : graph.dims()) {
      std::erase(unknown, d.name);
      if (!options.dims.count(d.name)) impl->dims.push_back(d.name);
    }
    if (!unknown.empty()) raise(diagnose(Code::undefined_name, unknown[0]));
    // What can be made now is made now, so that a run cannot meet an unsupported operator.
    if (impl->dims.empty()) impl->codes[{}] = impl->make(options.dims);
    return Program(std::shared_ptr<const Impl>(std::move(impl)));
  });
}

std::vector<Argument> Program::inputs() const { return impl_->inputs; }
std::vector<Argument> Program::scalars() const { return impl_->scalars; }
std::vector<Argument> Program::outputs() const { return impl_->outputs; }
size_t Program::compilations() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->codes.size();
}

std::vector<std::vector<int64_t>> Program::output_shapes(const std::vector<std::vector<int64_t>>& input_shapes) const {
  return guarded([&] {
    std::vector<std::vector<int64_t>> out;
    for (const Signature& s : impl_->code_for(input_shapes)->outputs) out.push_back(s.extents);
    return out;
  });
}

void Program::run(std::span<const View> inputs, std::span<const View> outputs, std::span<const double> scalars,
                  const Threads* threads) const {
  guarded([&] {
    std::vector<std::vector<int64_t>> shapes;
    for (const View& v : inputs) shapes.push_back(v.shape);
    const auto code = impl_->code_for(shapes);
    check(inputs, code->inputs, "inputs");
    check(outputs, code->outputs, "outputs");
    if (scalars.size() != code->scalars)
      raise(diagnose(Code::bad_call,
                     fmt::format("{} scalars were given, the program has {}", scalars.size(), code->scalars)));
    // Kernels may write a result before they have read all of an input: outputs that share memory with another
    // argument are computed apart and copied.
    std::vector<Range> taken;
    for (const View& v : inputs) taken.push_back(range_of(v));
    std::vector<View> targets(outputs.begin(), outputs.end());
    std::vector<Tensor> apart(outputs.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      if (overlaps_itself(targets[i]))
        raise(diagnose(Code::wrong_input, code->outputs[i].name, "elements of this output share memory"));
      const Range own = range_of(targets[i]);
      if (std::any_of(taken.begin(), taken.end(), [&](const Range& r) { return r.overlaps(own); })) {
        apart[i] = zeros(targets[i].type, targets[i].shape);
        targets[i] = apart[i];
      }
      taken.push_back(own);
    }
    code->run(inputs, targets, scalars, threads ? &threads->impl().pool : nullptr);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (apart[i].storage) copy_elements(apart[i], outputs[i]);
  });
}

std::vector<Tensor> Program::run(std::span<const View> inputs, std::span<const double> scalars,
                                 const Threads* threads) const {
  return guarded([&] {
    std::vector<std::vector<int64_t>> shapes;
    for (const View& v : inputs) shapes.push_back(v.shape);
    std::vector<Tensor> out;
    std::vector<View> views;
    for (const Signature& s : impl_->code_for(shapes)->outputs) {
      out.push_back(zeros(external(s.dtype), s.extents));
      views.push_back(out.back());
    }
    run(inputs, views, scalars, threads);
    return out;
  });
}

std::vector<Tensor> Program::run(std::initializer_list<Tensor> inputs) const {
  const std::vector<View> views(inputs.begin(), inputs.end());
  return run(std::span<const View>(views));
}

}  // namespace cleave
