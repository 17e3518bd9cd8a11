// The extension module cleave._leir: programs of the loop-equation language. Arrays come in by DLPack and go out as
// DLPack capsules that own their memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <cleave/leir.hpp>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using ConstArray = nb::ndarray<nb::ro, nb::device::cpu>;

cleave::View view_of(const ConstArray& a) {
  using Code = nb::dlpack::dtype_code;
  static const std::tuple<Code, int, cleave::ElementType> kTypes[] = {
      {Code::Float, 64, cleave::ElementType::f64}, {Code::Float, 32, cleave::ElementType::f32},
      {Code::Float, 16, cleave::ElementType::f16}, {Code::Bfloat, 16, cleave::ElementType::bf16},
      {Code::Int, 64, cleave::ElementType::i64},   {Code::Int, 32, cleave::ElementType::i32},
      {Code::Int, 16, cleave::ElementType::i16},   {Code::Int, 8, cleave::ElementType::i8},
      {Code::UInt, 32, cleave::ElementType::u32},  {Code::UInt, 16, cleave::ElementType::u16},
      {Code::UInt, 8, cleave::ElementType::u8},    {Code::Bool, 8, cleave::ElementType::boolean}};
  cleave::View v;
  bool known = false;
  for (const auto& [code, bits, type] : kTypes)
    if (a.dtype().code == static_cast<uint8_t>(code) && a.dtype().bits == bits && a.dtype().lanes == 1) {
      v.type = type;
      known = true;
    }
  if (!known)
    throw cleave::Error(cleave::Error::Kind::unsupported, "CLV6006", "",
                        "f64 f32 f16 bf16 i64 i32 i16 i8 u32 u16 u8 and bool are",
                        "an array's type is not supported: f64 f32 f16 bf16 i64 i32 i16 i8 u32 u16 u8 and bool are");
  v.data = const_cast<void*>(static_cast<const void*>(a.data()));
  for (size_t i = 0; i < a.ndim(); ++i) {
    v.shape.push_back(static_cast<int64_t>(a.shape(i)));
    v.strides.push_back(a.stride(i));
  }
  return v;
}

}  // namespace

NB_MODULE(_leir, m) {
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const cleave::Error& e) {
      const nb::object exception =
          nb::module_::import_("cleave._errors")
              .attr("make")(static_cast<int>(e.kind()), e.code(), e.node(), e.hint(), e.what());
      PyErr_SetObject(reinterpret_cast<PyObject*>(exception.ptr()->ob_type), exception.ptr());
    }
  });

  nb::class_<cleave::LeirProgram>(m, "LeirProgram")
      .def_static(
          "parse",
          [](const std::string& text, const std::string& name, bool strict, bool paper,
             const std::map<std::string, int64_t>& dims) {
            return cleave::LeirProgram::parse(text, {name, strict, paper, dims});
          },
          "text"_a, "name"_a, "strict"_a, "paper"_a, "dims"_a)
      .def("text", &cleave::LeirProgram::text, "compact"_a)
      .def("check", &cleave::LeirProgram::check)
      .def("messages", &cleave::LeirProgram::messages)
      .def("key", &cleave::LeirProgram::key)
      .def("variables",
           [](const cleave::LeirProgram& p) {
             nb::list out;
             for (const cleave::LeirVariable& v : p.variables())
               out.append(nb::make_tuple(v.name, v.role, v.type, v.shape));
             return out;
           })
      // The outputs' bytes by name, each with its type and shape.
      .def(
          "run",
          [](const cleave::LeirProgram& p, const std::map<std::string, ConstArray>& inputs, const std::string& via) {
            std::map<std::string, cleave::View> views;
            for (const auto& [name, array] : inputs) views.emplace(name, view_of(array));
            std::map<std::string, cleave::Tensor> outputs;
            {
              const nb::gil_scoped_release unlocked;
              outputs = p.run(views, via);
            }
            nb::dict out;
            for (const auto& [name, t] : outputs) {
              const auto bytes = static_cast<size_t>(t.elements() * cleave::size_of(t.type));
              out[name.c_str()] = nb::make_tuple(cleave::name(t.type), t.shape, nb::bytes(t.data, bytes));
            }
            return out;
          },
          "inputs"_a, "via"_a)
      .def("lower", &cleave::LeirProgram::lower, "to"_a, "target"_a, "fast"_a)
      .def(
          "raise_text", [](const cleave::LeirProgram& p, const std::string& name) { return p.raise(name).text(); },
          "name"_a)
      .def(
          "bench",
          [](const cleave::LeirProgram& p, int pairs, uint64_t seed) {
            const nb::gil_scoped_release unlocked;
            const cleave::LeirTimes t = p.bench(pairs, seed);
            return std::map<std::string, double>{
                {"jit", t.jit}, {"c", t.c}, {"jit_compile", t.jit_compile}, {"c_compile", t.c_compile}};
          },
          "pairs"_a, "seed"_a)
      .def(
          "verify",
          [](const cleave::LeirProgram& p, const cleave::LeirProgram& candidate, int draws, uint64_t seed) {
            cleave::LeirVerdict v;
            {
              const nb::gil_scoped_release unlocked;
              v = p.verify(candidate, draws, seed);
            }
            return nb::make_tuple(v.verdict, v.bitwise, v.reason, v.milliseconds);
          },
          "candidate"_a, "draws"_a, "seed"_a);
}
