// Compiled programs on the caller's buffers.
#include <algorithm>

#include "api/compiled.hpp"
#include "base/codes.hpp"
#include "driver/artefact.hpp"
#include "driver/dims.hpp"
#include "driver/program_cache.hpp"
#include "graph/integer_rules.hpp"
#include "runtime/timing.hpp"

namespace cleave {

using api::Compiled;
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

using DimValues = std::map<std::string, int64_t>;

// What a program is for one set of extents.
struct Shapes {
  DimValues dims;
  std::vector<Signature> inputs, outputs;
  std::vector<graph::IntegerRule> integers;
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

// Whether all of the range are elements of the view.
bool dense(const View& v, const Range& range) {
  int64_t bytes = size_of(v.type);
  for (const int64_t n : v.shape) bytes *= n;
  return static_cast<int64_t>(range.high - range.low) == bytes;
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
template <Code kWrong>
void check(std::span<const View> given, const std::vector<Signature>& wanted, const char* what) {
  if (given.size() != wanted.size())
    raise(diagnose(Code::bad_call,
                   fmt::format("{} {} were given, the program has {}", given.size(), what, wanted.size())));
  for (size_t i = 0; i < given.size(); ++i) {
    const Signature& s = wanted[i];
    if (internal(given[i].type) != s.dtype)
      raise(diagnose(kWrong, s.name,
                     fmt::format("it has the type {}, {} is needed", name(given[i].type), name(s.dtype))));
    if (given[i].shape != s.extents)
      raise(diagnose(kWrong, s.name,
                     fmt::format("it has the shape {}, {} is needed", list(given[i].shape), list(s.extents))));
    if (!given[i].strides.empty() && given[i].strides.size() != given[i].shape.size())
      raise(diagnose(kWrong, s.name,
                     fmt::format("it has {} strides for {} axes", given[i].strides.size(), given[i].shape.size())));
    if (!given[i].data && oracle::product(s.extents) > 0) raise(diagnose(kWrong, s.name, "it has no memory"));
  }
}

// Where requests begin, which pages they have: one error for each input that says something impossible.
void check_integers(std::span<const View> inputs, const Shapes& at, const graph::Graph& graph) {
  if (at.integers.empty()) return;
  std::vector<int64_t> counts;
  for (const Signature& s : at.inputs) counts.push_back(oracle::product(s.extents));
  const Diagnostics bad = graph::check_integers(graph, at.integers, counts, [&](size_t input, int64_t i) {
    const View& v = inputs[input];
    const int64_t stride = v.strides.empty() ? 1 : v.strides[0];
    return load_integer(internal(v.type), static_cast<const std::byte*>(v.data) + i * stride * size_of(v.type));
  });
  if (!bad.empty()) raise(bad);
}

// A graph and the code that was made of it.
struct Made {
  graph::Graph graph;  // whose extents are checked and whose constants are read; symbols of its own
  size_t scalars = 0;
  std::shared_ptr<const Compiled> chosen;
  std::optional<tile::Program> unfused;  // symbols of its own; for the calls that `dispatch` names
  driver::Dispatch dispatch;
  Machine machine;
  std::shared_ptr<const Compiled> fallback;  // the code of `unfused`, made when a call needs it
  std::map<std::vector<int64_t>, std::shared_ptr<const Shapes>> shapes;  // by the values of the dims

  Made(const graph::Graph& g, const tile::Program& program, const Machine& m, std::vector<uint8_t> object)
      : graph(g.detached()),
        scalars(g.leaves(graph::Op::scalar).size()),
        chosen(std::make_shared<const Compiled>(g, program, m, std::move(object))),
        machine(m) {}
  void set_unfused(const tile::Program& program) {
    unfused = program;
    unfused->syms = std::make_shared<sym::Pool>(*program.syms);
  }
};

constexpr size_t kMaxShapes = 4096;  // sets of extents that are remembered

}  // namespace

struct Program::Impl {
  std::shared_ptr<const Graph::Impl> source;  // that code is made from at the first run; null when it is made
  CompileOptions options;
  std::vector<Argument> inputs, scalars, outputs;
  mutable std::vector<std::string> dims;  // that the inputs of each run give values
  mutable std::mutex mutex;
  mutable std::unique_ptr<Made> made;  // stays once it is there

  DimValues values(std::span<const std::vector<int64_t>> shapes, const DimValues& given) const;
  std::shared_ptr<const Shapes> shapes_for(std::span<const std::vector<int64_t>> shapes, const DimValues& given) const;
  std::shared_ptr<const Compiled> code_for(const Shapes& shapes) const;
  void make(const DimValues& typical) const;
};

namespace {

// The values of dimensions that the shapes of the inputs mean: from the axes that are linear in one of them.
std::map<std::string, int64_t> values_of(const graph::Graph& g, std::span<const std::vector<int64_t>> shapes) {
  const std::vector<graph::ValueId> leaves = g.leaves(graph::Op::input);
  if (shapes.size() != leaves.size())
    raise(diagnose(Code::bad_call,
                   fmt::format("{} inputs were given, the program has {}", shapes.size(), leaves.size())));
  std::map<std::string, int64_t> out;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const graph::Shape& declared = g.type(leaves[i]).shape;
    const std::string& name = g.producer(leaves[i]).attributes.get<std::string>("name");
    if (shapes[i].size() != declared.size())
      raise(diagnose(Code::wrong_input, name,
                     fmt::format("it has {} axes, {} are needed", shapes[i].size(), declared.size())));
    for (size_t axis = 0; axis < declared.size(); ++axis) {
      const auto solved = driver::solve(g.syms(), declared[axis], shapes[i][axis]);
      if (const auto dim = solved ? std::nullopt : driver::linear_in(g.syms(), declared[axis]))
        raise(diagnose(Code::wrong_input, name,
                       fmt::format("its axis {} has the extent {}, which `{}` is for no `{}`", axis, shapes[i][axis],
                                   g.syms().print(declared[axis]), *dim)));
      if (!solved) continue;  // checked once the values are known
      const auto& [d, value] = *solved;
      const auto [known, fresh] = out.emplace(d, value);
      if (!fresh && known->second != value)
        raise(diagnose(
            Code::wrong_input, name,
            fmt::format("its axis {} has the extent {}, `{}` is {} already", axis, shapes[i][axis], d, known->second)));
    }
  }
  return out;
}

}  // namespace

// Code for every value of the open dimensions; the schedule is chosen for the typical ones.
void Program::Impl::make(const DimValues& typical) const {
  const std::lock_guard pool(source->mutex);
  driver::Compilation c;
  c.options.threads = options.threads;
  c.options.cache_dir = api::cache_folder(options.cache_directory);
  if (!options.search) c.options.disabled = {"search"};
  for (const auto& [name, value] : options.dims) c.options.dims[name] = {value, value, value};
  for (const auto& [name, value] : typical) {
    sym::Interval range = source->graph.syms().symbol_range(*source->graph.syms().find_symbol(name));
    if (const auto narrower = options.ranges.find(name); narrower != options.ranges.end()) {
      range.lo = std::max(range.lo, narrower->second.first);
      range.hi = std::min(range.hi, narrower->second.second);
    }
    if (value < range.lo || value > range.hi) raise(diagnose(Code::dim_out_of_range, name, value, range.lo, range.hi));
    c.options.dims[name] = {range.lo, range.hi, value};
  }
  c.input.format = driver::Format::graph;
  c.input.graph = source->graph;
  if (options.interrupted) c.options.interrupted = options.interrupted;
  const auto passes = [&](const char* first, const char* last) {
    if (Diagnostics bad = driver::run_passes(c, last, first); !bad.empty()) raise(bad);
    if (c.options.interrupted()) throw Error(Error::Kind::interrupted, "", "", "", "the compilation was interrupted");
  };
  passes("bind", "bind");
  c.machine = take(driver::machine_for(c.options));
  const driver::ProgramCache cache(c.options.cache_dir);
  const std::string key = cache.key(c);
  std::optional<driver::ChosenProgram> chosen = cache.find(key, c.machine);
  const bool known = chosen.has_value();
  if (!known) {
    passes("expand", "search");
    passes("schedule", "schedule");
    chosen = {driver::chosen_candidate(c).program, {}, std::nullopt};
    if (!typical.empty()) chosen->unfused = c.unfused->program;
  }
  auto fresh = std::make_unique<Made>(*c.bound, chosen->program, c.machine, std::move(chosen->object));
  if (chosen->unfused) fresh->set_unfused(*chosen->unfused);
  // What a search that ran short of time chose is no lasting answer.
  if (!known && runtime::wall_seconds() - c.started < c.options.budget.seconds / 2) {
    chosen->object = fresh->chosen->object();
    cache.keep(key, *chosen, c.machine);
  }
  made = std::move(fresh);
  // A range of one value is no open dimension.
  dims.clear();
  for (const sym::Expr d : made->graph.dims()) dims.push_back(made->graph.syms().symbol_name(d));
}

DimValues Program::Impl::values(std::span<const std::vector<int64_t>> shapes, const DimValues& given) const {
  const std::unique_lock pool = made ? std::unique_lock<std::mutex>() : std::unique_lock(source->mutex);
  DimValues out = values_of(made ? made->graph : source->graph, shapes);
  for (const auto& [name, value] : given) {
    if (std::find(dims.begin(), dims.end(), name) == dims.end()) raise(diagnose(Code::undefined_name, name));
    const auto [known, fresh] = out.emplace(name, value);
    if (!fresh && known->second != value)
      raise(diagnose(Code::wrong_input, name,
                     fmt::format("the value {} is given, by the inputs it is {}", value, known->second)));
  }
  std::erase_if(out, [&](const auto& v) { return std::find(dims.begin(), dims.end(), v.first) == dims.end(); });
  for (const std::string& d : dims)
    if (!out.count(d)) raise(diagnose(Code::unbound_dim, d, d));
  return out;
}

std::shared_ptr<const Shapes> Program::Impl::shapes_for(std::span<const std::vector<int64_t>> shapes,
                                                        const DimValues& given) const {
  const std::lock_guard lock(mutex);
  DimValues at_call = values(shapes, given);
  if (!made) {
    make(at_call);
    // A range of one value is no open dimension any more.
    std::erase_if(at_call, [&](const auto& v) { return std::find(dims.begin(), dims.end(), v.first) == dims.end(); });
  }
  std::vector<int64_t> key;
  for (const std::string& d : dims) key.push_back(at_call.at(d));
  if (const auto known = made->shapes.find(key); known != made->shapes.end()) return known->second;
  const graph::Graph at = take(graph::bind(made->graph, at_call));
  auto out = std::make_shared<Shapes>();
  out->dims = std::move(at_call);
  for (const graph::ValueId v : at.leaves(graph::Op::input))
    out->inputs.push_back({at.producer(v).attributes.get<std::string>("name"), at.type(v).dtype, at.extents(v)});
  for (const graph::Output& o : at.outputs())
    out->outputs.push_back({o.name, at.type(o.value).dtype, at.extents(o.value)});
  out->integers = graph::integer_rules(at);
  if (made->shapes.size() >= kMaxShapes) made->shapes.clear();
  return made->shapes.emplace(std::move(key), std::move(out)).first->second;
}

std::shared_ptr<const Compiled> Program::Impl::code_for(const Shapes& shapes) const {
  if (!made->unfused || !made->dispatch.unfused(shapes.dims)) return made->chosen;
  const std::lock_guard lock(mutex);
  if (!made->fallback) made->fallback = std::make_shared<const Compiled>(made->graph, *made->unfused, made->machine);
  return made->fallback;
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
                                                const Machine& machine, std::vector<uint8_t> object,
                                                const tile::Program* unfused, const driver::Dispatch& dispatch) {
  auto impl = std::make_shared<Program::Impl>();
  impl->inputs = leaf_arguments(g, graph::Op::input);
  impl->scalars = leaf_arguments(g, graph::Op::scalar);
  impl->outputs = output_arguments(g);
  for (const sym::Expr d : g.dims()) impl->dims.push_back(g.syms().symbol_name(d));
  impl->made = std::make_unique<Made>(g, program, machine, std::move(object));
  if (!impl->dims.empty() && unfused) impl->made->set_unfused(*unfused);
  impl->made->dispatch = dispatch;
  return impl;
}

}  // namespace api

Program Program::load(const std::string& folder) {
  return guarded([&] {
    SourceText source;
    driver::Artefact a = take(driver::load_artefact(folder, &source), &source);
    return Program(api::program_of(a.input, a.program, a.machine, std::move(a.object),
                                   a.unfused ? &*a.unfused : nullptr, a.dispatch));
  });
}

Program Program::compile(const Graph& graph, const CompileOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Impl>();
    impl->options = options;
    impl->source = graph.shared();
    impl->inputs = graph.inputs();
    impl->scalars = graph.scalars();
    impl->outputs = graph.outputs();
    std::map<std::string, int64_t> typical = options.typical;
    std::vector<std::string> unknown;
    for (const auto& [name, value] : options.dims) unknown.push_back(name);
    for (const auto& [name, value] : typical) unknown.push_back(name);
    for (const auto& [name, range] : options.ranges) unknown.push_back(name);
    bool known = true;
    for (const Graph::Dim& d : graph.dims()) {
      std::erase(unknown, d.name);
      if (options.dims.count(d.name)) {
        typical.erase(d.name);
        continue;
      }
      if (d.low == d.high) typical[d.name] = d.low;
      impl->dims.push_back(d.name);
      known = known && typical.count(d.name);
    }
    if (!unknown.empty()) raise(diagnose(Code::undefined_name, unknown[0]));
    // What can be made now is made now, so that a run cannot meet an unsupported operator.
    if (known) impl->make(typical);
    return Program(std::shared_ptr<const Impl>(std::move(impl)));
  });
}

std::vector<Argument> Program::inputs() const { return impl_->inputs; }
std::vector<Argument> Program::scalars() const { return impl_->scalars; }
std::vector<Argument> Program::outputs() const { return impl_->outputs; }
size_t Program::compilations() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->made ? 1 + (impl_->made->fallback != nullptr) : 0;
}

std::vector<std::string> Program::dims() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->dims;
}

std::vector<std::vector<int64_t>> Program::output_shapes(const std::vector<std::vector<int64_t>>& input_shapes,
                                                         const DimValues& dims) const {
  return guarded([&] {
    std::vector<std::vector<int64_t>> out;
    for (const Signature& s : impl_->shapes_for(input_shapes, dims)->outputs) out.push_back(s.extents);
    return out;
  });
}

void Program::run(std::span<const View> inputs, std::span<const View> outputs, std::span<const double> scalars,
                  const Threads* threads, const DimValues& dims) const {
  guarded([&] {
    std::vector<std::vector<int64_t>> shapes;
    for (const View& v : inputs) shapes.push_back(v.shape);
    const auto at = impl_->shapes_for(shapes, dims);
    check<Code::wrong_input>(inputs, at->inputs, "inputs");
    check<Code::wrong_output>(outputs, at->outputs, "outputs");
    check_integers(inputs, *at, impl_->made->graph);
    if (scalars.size() != impl_->made->scalars)
      raise(diagnose(Code::bad_call,
                     fmt::format("{} scalars were given, the program has {}", scalars.size(), impl_->made->scalars)));
    // Kernels may write a result before they have read all of an input: outputs that share memory with another
    // argument are computed apart and copied.
    std::vector<Range> taken;
    for (const View& v : inputs) taken.push_back(range_of(v));
    std::vector<View> targets(outputs.begin(), outputs.end());
    std::vector<Tensor> apart(outputs.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      if (overlaps_itself(targets[i]))
        raise(diagnose(Code::wrong_output, at->outputs[i].name, "its elements share memory"));
      const Range own = range_of(targets[i]);
      if (std::any_of(taken.begin(), taken.end(), [&](const Range& r) { return r.overlaps(own); })) {
        apart[i] = zeros(targets[i].type, targets[i].shape);
        targets[i] = apart[i];
      }
      for (size_t k = 0; k < i; ++k)
        if (const Range& other = taken[inputs.size() + k];
            own.overlaps(other) && dense(outputs[i], own) && dense(outputs[k], other))
          raise(diagnose(Code::wrong_output, at->outputs[i].name,
                         fmt::format("it shares memory with `{}`, another output", at->outputs[k].name)));
      taken.push_back(own);
    }
    impl_->code_for(*at)->run(inputs, targets, scalars, at->dims, threads ? &threads->impl().pool : nullptr);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (apart[i].storage) copy_elements(apart[i], outputs[i]);
  });
}

std::vector<Tensor> Program::run(std::span<const View> inputs, std::span<const double> scalars, const Threads* threads,
                                 const DimValues& dims) const {
  return guarded([&] {
    std::vector<std::vector<int64_t>> shapes;
    for (const View& v : inputs) shapes.push_back(v.shape);
    std::vector<Tensor> out;
    std::vector<View> views;
    for (const Signature& s : impl_->shapes_for(shapes, dims)->outputs) {
      out.push_back(zeros(external(s.dtype), s.extents));
      views.push_back(out.back());
    }
    run(inputs, views, scalars, threads, dims);
    return out;
  });
}

std::vector<Tensor> Program::run(std::initializer_list<Tensor> inputs) const {
  const std::vector<View> views(inputs.begin(), inputs.end());
  return run(std::span<const View>(views));
}

}  // namespace cleave
