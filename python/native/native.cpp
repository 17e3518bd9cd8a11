// The extension module cleave._native: the library's handles for Python. Tensors come in by DLPack (numpy, torch and
// everything else with __dlpack__) without a copy; the interpreter lock is released while programs run or are made.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <cleave/cleave.hpp>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Array = nb::ndarray<nb::device::cpu>;
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu>;

// "i16", "f8", "c64": as dtypes are called here, also those that there are not.
std::string name_of(nb::dlpack::dtype d) {
  constexpr const char* kLetters[] = {"i", "u", "f", "handle", "bf", "c", "bool"};
  const std::string letter =
      d.code < std::size(kLetters) ? kLetters[d.code] : "dtype code " + std::to_string(d.code) + ", ";
  return letter + std::to_string(d.bits) + (d.lanes == 1 ? "" : " in vectors");
}

[[noreturn]] void not_supported(const std::string& type) {
  const std::string hint = "convert it to one of f64 f32 f16 bf16 i64 i32 i16 i8 u32 u16 u8 bool";
  throw cleave::Error(cleave::Error::Kind::unsupported, "CLV6006", type, hint,
                      "arrays of " + type + " are not supported; " + hint);
}

cleave::ElementType type_of(nb::dlpack::dtype d) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(d.code);
  if (d.lanes == 1) {
    if (code == Code::Float && d.bits == 64) return cleave::ElementType::f64;
    if (code == Code::Float && d.bits == 32) return cleave::ElementType::f32;
    if (code == Code::Float && d.bits == 16) return cleave::ElementType::f16;
    if (code == Code::Bfloat && d.bits == 16) return cleave::ElementType::bf16;
    if (code == Code::Int && d.bits == 64) return cleave::ElementType::i64;
    if (code == Code::Int && d.bits == 32) return cleave::ElementType::i32;
    if (code == Code::Int && d.bits == 16) return cleave::ElementType::i16;
    if (code == Code::Int && d.bits == 8) return cleave::ElementType::i8;
    if (code == Code::UInt && d.bits == 32) return cleave::ElementType::u32;
    if (code == Code::UInt && d.bits == 16) return cleave::ElementType::u16;
    if (code == Code::UInt && d.bits == 8) return cleave::ElementType::u8;
    if (code == Code::Bool && d.bits == 8) return cleave::ElementType::boolean;
  }
  not_supported(name_of(d));
}

template <class A>
cleave::View view_of(const A& a) {
  cleave::View v;
  v.data = const_cast<void*>(static_cast<const void*>(a.data()));
  v.type = type_of(a.dtype());
  for (size_t i = 0; i < a.ndim(); ++i) {
    v.shape.push_back(static_cast<int64_t>(a.shape(i)));
    v.strides.push_back(a.stride(i));
  }
  return v;
}

cleave::ElementType type_named(const std::string& name) {
  const auto t = cleave::element_type(name);
  if (!t)
    throw nb::value_error(
        ("`" + name + "` is no element type: f64 f32 f16 bf16 i64 i32 i16 i8 u32 u16 u8 bool").c_str());
  return *t;
}

using PyExtent = std::variant<int64_t, std::string>;
PyExtent to_python(const cleave::Extent& e) { return e.is_number() ? PyExtent(e.number()) : PyExtent(e.text()); }
std::vector<PyExtent> to_python(const std::vector<cleave::Extent>& shape) {
  std::vector<PyExtent> out;
  for (const cleave::Extent& e : shape) out.push_back(to_python(e));
  return out;
}
cleave::Extent to_extent(const PyExtent& e) {
  return std::holds_alternative<int64_t>(e) ? cleave::Extent(std::get<int64_t>(e))
                                            : cleave::Extent(std::get<std::string>(e));
}
std::vector<cleave::Extent> to_extents(const std::vector<PyExtent>& shape) {
  std::vector<cleave::Extent> out;
  for (const PyExtent& e : shape) out.push_back(to_extent(e));
  return out;
}

nb::list to_python(const std::vector<cleave::Argument>& arguments) {
  nb::list out;
  for (const cleave::Argument& a : arguments)
    out.append(nb::make_tuple(a.name, cleave::name(a.type), to_python(a.shape)));
  return out;
}

// Attribute values as Python writes them: numbers, texts, lists of whole numbers or of extents, {"dtype": "f32"}.
cleave::Attribute to_attribute(const std::string& key, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) {
    const auto text = nb::cast<std::string>(value);
    if (key == "dtype") return type_named(text);
    return text;
  }
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::vector<PyExtent> extents;
    if (!nb::try_cast(value, extents))
      throw nb::type_error(("`" + key + "`: a list of whole numbers or extents is needed").c_str());
    std::vector<int64_t> numbers;
    for (const PyExtent& e : extents) {
      if (!std::holds_alternative<int64_t>(e)) return to_extents(extents);
      numbers.push_back(std::get<int64_t>(e));
    }
    return numbers;
  }
  throw nb::type_error(("attribute `" + key + "` has a value of a type that no attribute has").c_str());
}

// Has the user pressed Ctrl-C? The signal is consumed: what was found so far is the answer.
bool interrupted() {
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() == 0) return false;
  PyErr_Clear();
  return true;
}

// The same where there is no answer yet: KeyboardInterrupt stays pending and is raised in the end.
bool stopped() {
  const nb::gil_scoped_acquire lock;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

std::vector<cleave::View> views_of(const std::vector<ConstArray>& arrays) {
  std::vector<cleave::View> out;
  for (const ConstArray& a : arrays) out.push_back(view_of(a));
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  // Programs that modules and the tables of torch hold are alive when the interpreter ends: that is no fault to report.
  nb::set_leak_warnings(false);
  m.attr("version") = cleave::library_version();

  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const cleave::Error& e) {
      if (e.kind() == cleave::Error::Kind::interrupted && PyErr_Occurred()) return;
      const nb::object exception =
          nb::module_::import_("cleave._errors")
              .attr("make")(static_cast<int>(e.kind()), e.code(), e.node(), e.hint(), e.what());
      PyErr_SetObject(reinterpret_cast<PyObject*>(exception.ptr()->ob_type), exception.ptr());
    }
  });

  nb::class_<cleave::Graph>(m, "Graph")
      .def_static(
          "load", [](const std::string& path) { return cleave::Graph::load(path); }, "path"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def_static("parse", &cleave::Graph::parse, "text"_a, "name"_a = "graph", "folder"_a = "")
      .def_static(
          "from_onnx",
          [](const nb::bytes& model, const std::string& name, const std::string& folder) {
            const std::string_view bytes(model.c_str(), model.size());
            const nb::gil_scoped_release unlocked;
            return cleave::Graph::from_onnx(bytes, name, folder);
          },
          "model"_a, "name"_a = "model", "folder"_a = "")
      .def_prop_ro("name", &cleave::Graph::name)
      .def("text", &cleave::Graph::text)
      .def("save", &cleave::Graph::save, "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("inputs", [](const cleave::Graph& g) { return to_python(g.inputs()); })
      .def("scalars", [](const cleave::Graph& g) { return to_python(g.scalars()); })
      .def("outputs", [](const cleave::Graph& g) { return to_python(g.outputs()); })
      .def("dims", [](const cleave::Graph& g) {
        nb::list out;
        for (const auto& d : g.dims()) out.append(nb::make_tuple(d.name, d.low, d.high));
        return out;
      });

  nb::class_<cleave::GraphBuilder>(m, "GraphBuilder")
      .def(nb::init<const std::string&>(), "name"_a = "graph")
      .def("dim", &cleave::GraphBuilder::dim, "name"_a, "low"_a = 0, "high"_a = int64_t{1} << 31)
      .def(
          "input",
          [](cleave::GraphBuilder& b, const std::string& name, const std::string& type,
             const std::vector<PyExtent>& shape) { return b.input(name, type_named(type), to_extents(shape)).id; },
          "name"_a, "dtype"_a, "shape"_a)
      .def(
          "constant",
          [](cleave::GraphBuilder& b, const std::string& name, const ConstArray& content) {
            return b.constant(name, view_of(content)).id;
          },
          "name"_a, "content"_a)
      .def(
          "scalar",
          [](cleave::GraphBuilder& b, const std::string& name, const std::string& type) {
            return b.scalar(name, type_named(type)).id;
          },
          "name"_a, "dtype"_a)
      .def(
          "literal",
          [](cleave::GraphBuilder& b, double value, const std::string& type) {
            return b.literal(value, type_named(type)).id;
          },
          "value"_a, "dtype"_a)
      .def(
          "add",
          [](cleave::GraphBuilder& b, const std::string& op, const std::vector<uint32_t>& operands,
             const nb::dict& attributes) {
            std::vector<cleave::Value> values;
            for (uint32_t v : operands) values.push_back({v});
            cleave::AttributeMap map;
            for (const auto& [key, value] : attributes) {
              const auto name = nb::cast<std::string>(key);
              map.emplace(name, to_attribute(name, value));
            }
            std::vector<uint32_t> out;
            for (const cleave::Value& v : b.add_all(op, values, map)) out.push_back(v.id);
            return out;
          },
          "op"_a, "operands"_a, "attributes"_a)
      .def(
          "dtype", [](const cleave::GraphBuilder& b, uint32_t v) { return cleave::name(b.type({v})); }, "value"_a)
      .def(
          "shape", [](const cleave::GraphBuilder& b, uint32_t v) { return to_python(b.shape({v})); }, "value"_a)
      .def(
          "output", [](cleave::GraphBuilder& b, const std::string& name, uint32_t v) { b.output(name, {v}); }, "name"_a,
          "value"_a)
      .def("build", &cleave::GraphBuilder::build);

  nb::class_<cleave::Threads>(m, "Threads")
      .def(nb::init<int>(), "count"_a = 0)
      .def_prop_ro("count", &cleave::Threads::count);

  nb::class_<cleave::Program>(m, "Program")
      .def_static("load", &cleave::Program::load, "folder"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_static(
          "compile",
          [](const cleave::Graph& graph, const std::map<std::string, int64_t>& dims,
             const std::map<std::string, int64_t>& typical, int threads, bool search,
             const std::map<std::string, std::pair<int64_t, int64_t>>& ranges) {
            cleave::CompileOptions o;
            o.dims = dims;
            o.typical = typical;
            o.ranges = ranges;
            o.threads = threads;
            o.search = search;
            o.interrupted = stopped;
            const nb::gil_scoped_release unlocked;
            return cleave::Program::compile(graph, o);
          },
          "graph"_a, "dims"_a = std::map<std::string, int64_t>(), "typical"_a = std::map<std::string, int64_t>(),
          "threads"_a = 1, "search"_a = true, "ranges"_a = std::map<std::string, std::pair<int64_t, int64_t>>())
      .def("inputs", [](const cleave::Program& p) { return to_python(p.inputs()); })
      .def("scalars", [](const cleave::Program& p) { return to_python(p.scalars()); })
      .def("outputs", [](const cleave::Program& p) { return to_python(p.outputs()); })
      .def("dims", &cleave::Program::dims)
      .def("output_shapes", &cleave::Program::output_shapes, "input_shapes"_a,
           "dims"_a = std::map<std::string, int64_t>())
      .def("compilations", &cleave::Program::compilations)
      .def(
          "run",
          [](const cleave::Program& p, const std::vector<ConstArray>& inputs, const std::vector<Array>& outputs,
             const std::vector<double>& scalars, const cleave::Threads* threads,
             const std::map<std::string, int64_t>& dims) {
            const std::vector<cleave::View> in = views_of(inputs);
            std::vector<cleave::View> out;
            for (const Array& a : outputs) out.push_back(view_of(a));
            const nb::gil_scoped_release unlocked;
            p.run(in, out, scalars, threads, dims);
          },
          "inputs"_a, "outputs"_a, "scalars"_a = std::vector<double>(), "threads"_a = nb::none(),
          "dims"_a = std::map<std::string, int64_t>());

  nb::class_<cleave::Optimized>(m, "Optimized")
      .def("program", &cleave::Optimized::program)
      .def("speedup", &cleave::Optimized::speedup)
      .def("status", &cleave::Optimized::status)
      .def("text", &cleave::Optimized::text)
      .def("json", &cleave::Optimized::json)
      .def("path_json", &cleave::Optimized::path_json)
      .def("candidates_jsonl", &cleave::Optimized::candidates_jsonl)
      .def("certificate", &cleave::Optimized::certificate)
      .def("source", &cleave::Optimized::source, "stage"_a)
      .def("report", &cleave::Optimized::report)
      .def("notes", &cleave::Optimized::notes)
      .def("coverage", &cleave::Optimized::coverage)
      .def("save", &cleave::Optimized::save, "folder"_a);

  m.def(
      "optimize",
      [](const cleave::Graph& graph, const std::map<std::string, std::string>& dims, const std::string& target,
         const std::string& budget, int threads, uint64_t seed, bool deterministic, double rtol, double atol,
         const std::optional<std::string>& cache_directory,
         const std::optional<std::function<void(size_t, size_t, double, double)>>& progress) {
        cleave::OptimizeOptions o;
        o.dims = dims;
        o.target = target;
        o.budget = budget;
        o.threads = threads;
        o.seed = seed;
        o.deterministic = deterministic;
        o.rtol = rtol;
        o.atol = atol;
        o.cache_directory = cache_directory;
        o.command = "cleave.optimize";
        o.interrupted = [stop = false]() mutable { return stop = stop || interrupted(); };
        if (progress)
          o.progress = [&](const cleave::Progress& p) {
            const nb::gil_scoped_acquire lock;
            (*progress)(p.tried, p.candidates, p.best_speedup, p.seconds);
          };
        const nb::gil_scoped_release unlocked;
        return cleave::optimize(graph, o);
      },
      "graph"_a, "dims"_a, "target"_a, "budget"_a, "threads"_a, "seed"_a, "deterministic"_a, "rtol"_a, "atol"_a,
      "cache_directory"_a, "progress"_a);
}
