// Every operator of the table with random ranks, extents, types, attributes and constants, sensible or not: the import
// gives a graph that the interpreter can run, or diagnostics; it never crashes, hangs, or makes an invalid graph.
#include <gtest/gtest.h>

#include <climits>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
#include "frontend/onnx_context.hpp"
#include "frontend/onnx_tensor.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

class Choices {
 public:
  explicit Choices(uint64_t seed) : rng_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_.below(static_cast<uint64_t>(n))); }
  bool often() { return below(4) != 0; }
  int64_t number() {
    const int64_t odd[] = {INT64_MAX, INT64_MIN, int64_t{1} << 40, -(int64_t{1} << 40), 1000};
    return below(40) == 0 ? odd[below(5)] : below(7) - 2;
  }
  std::vector<int64_t> list(int64_t length) {
    std::vector<int64_t> out;
    const bool small = often();
    for (int64_t i = 0; i < length; ++i) out.push_back(small ? below(3) : number());
    return out;
  }

 private:
  Rng rng_;
};

const char* const kWords[] = {"NOTSET",
                              "SAME_UPPER",
                              "SAME_LOWER",
                              "VALID",
                              "constant",
                              "reflect",
                              "edge",
                              "wrap",
                              "linear",
                              "cubic",
                              "nearest",
                              "mean",
                              "sum",
                              "none",
                              "add",
                              "mul",
                              "max",
                              "LEFT",
                              "RIGHT",
                              "DCR",
                              "CRD",
                              "zeros",
                              "border",
                              "reflection",
                              "ij,jk->ik",
                              "ii->i",
                              "...i,i",
                              "ij->",
                              "align_corners",
                              "asymmetric",
                              "tf_crop_and_resize",
                              "floor",
                              "not_larger",
                              "circular",
                              "tanh"};

// A model of one node; the operands share most of their extents, so that many fit.
OnnxModel random_node(const onnx_import::OperatorRow& row, Choices& choose) {
  const int64_t opsets[] = {1, 6, 7, 9, 11, 13, 18, 20, 23};
  OnnxModel m(choose.often() ? 23 : opsets[choose.below(9)]);
  const int64_t most = std::min<int64_t>(static_cast<int64_t>(row.max_inputs), 8);
  const int64_t count = static_cast<int64_t>(row.min_inputs) +
                        choose.below(most - std::min<int64_t>(most, static_cast<int64_t>(row.min_inputs)) + 1);
  const int64_t rank = choose.below(6);
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(choose.often() ? 1 + choose.below(4) : choose.below(2));
  const int types[] = {onnx::TensorProto::FLOAT,  onnx::TensorProto::INT64,   onnx::TensorProto::INT32,
                       onnx::TensorProto::UINT8,  onnx::TensorProto::BOOL,    onnx::TensorProto::FLOAT16,
                       onnx::TensorProto::DOUBLE, onnx::TensorProto::BFLOAT16};
  // Mostly a type that the signature wants, equal ones for equal letters.
  const int favourite = types[choose.often() ? 0 : choose.below(8)];
  const auto type_of = [&](int64_t i) {
    if (row.types.empty() || !choose.often()) return types[choose.often() ? 0 : choose.below(8)];
    const char letter = row.types[std::min(static_cast<size_t>(i), row.types.size() - 1)];
    for (const int type : {favourite, types[0], types[1], types[3], types[4]})
      if (onnx_import::type_fits(letter, *onnx_import::dtype_of(type))) return type;
    return types[0];
  };
  std::vector<std::string> inputs;
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = "x" + std::to_string(i);
    if (i > 0 && choose.below(10) == 0) {
      inputs.push_back("");
      continue;
    }
    inputs.push_back(name);
    const int type = type_of(i);
    if (i > 0 && choose.below(2) == 0 && (type == types[1] || choose.below(20) == 0)) {  // a constant, as shapes are
      if (choose.below(3) == 0) {
        m.scalar_int(name, choose.number());
      } else {
        m.ints(name, choose.list(choose.below(5)));
      }
      continue;
    }
    std::vector<int64_t> own = shape;
    if (choose.below(3) == 0) own.resize(static_cast<size_t>(choose.below(6)), 1 + choose.below(3));
    std::vector<std::string> extents;
    for (const int64_t e : own) extents.push_back(choose.below(12) == 0 ? "n" : std::to_string(e));
    m.input(name, extents, type);
  }
  std::vector<std::pair<std::string, OnnxAttribute>> attributes;
  std::string_view names = row.attributes;
  while (!names.empty()) {
    const size_t end = names.find(' ');
    const std::string name(names.substr(0, end));
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
    if (choose.below(3) == 0) continue;
    using Kind = onnx::AttributeProto;
    const int kinds[] = {Kind::INT, Kind::FLOAT, Kind::STRING, Kind::INTS};
    const int wanted = onnx_import::attribute_type(name);
    switch (wanted != Kind::UNDEFINED && choose.below(20) != 0 ? wanted : kinds[choose.below(4)]) {
      case Kind::INT: attributes.emplace_back(name, choose.number()); break;
      case Kind::FLOAT: attributes.emplace_back(name, static_cast<float>(choose.below(9) - 3) / 2); break;
      case Kind::STRING: attributes.emplace_back(name, std::string(kWords[choose.below(std::size(kWords))])); break;
      default:
        attributes.emplace_back(name, choose.list(choose.often() ? std::max<int64_t>(rank - 2, 1) : choose.below(9)));
    }
  }
  const int64_t results = 1 + (choose.below(3) == 0 ? choose.below(3) : 0);
  std::vector<std::string> outputs;
  for (int64_t i = 0; i < results; ++i) outputs.push_back("y" + std::to_string(i));
  m.node(row.name, inputs, outputs, attributes);
  for (const std::string& o : outputs) m.output(o);
  return m;
}

TEST(OnnxRandom, NodesAreImportedOrRefused) {
  size_t imported = 0, evaluated = 0;
  for (const auto& row : onnx_import::operator_rows()) {
    for (uint64_t round = 0; round < 60; ++round) {
      SCOPED_TRACE(fmt::format("{} round {}", row.name, round));
      uint64_t seed = round + 1;
      for (const char* c = row.name; *c; ++c) seed = seed * 131 + static_cast<uint64_t>(*c);
      Choices choose(seed);
      const OnnxModel m = random_node(row, choose);
      const auto g = m.import();
      if (!g.ok()) {
        EXPECT_FALSE(render(g.errors(), nullptr).empty());
        continue;
      }
      ++imported;
      EXPECT_TRUE(graph::verify(*g).empty()) << graph::print(*g);
      std::map<std::string, int64_t> dims;
      for (const sym::Expr d : g->dims()) dims[g->syms().symbol_name(d)] = choose.below(4);
      const auto bound = graph::bind(*g, dims);
      if (!bound.ok() || !bound->has_constant_shapes()) continue;
      int64_t most = 0;
      for (const graph::NodeId id : bound->node_ids())
        for (const graph::ValueId v : bound->node(id).results)
          most = std::max(most, oracle::product(bound->extents(v)));
      if (most > 20000) continue;
      std::map<std::string, oracle::Tensor> inputs;
      for (const graph::ValueId v : bound->leaves(graph::Op::input)) {
        const graph::Type& type = bound->type(v);
        std::vector<double> values(static_cast<size_t>(oracle::product(bound->extents(v))));
        for (double& x : values)
          x = is_real(type.dtype) ? static_cast<double>(choose.below(17) - 8) / 4
                                  : static_cast<double>(choose.below(2));
        inputs[bound->producer(v).attributes.get<std::string>("name")] =
            oracle::tensor(type.dtype, bound->extents(v), std::move(values));
      }
      const auto values = oracle::evaluate(*bound, inputs);
      EXPECT_TRUE(values.ok()) << render(values.errors(), nullptr) << graph::print(*bound);
      ++evaluated;
    }
  }
  // Enough of them fit for this to say something.
  EXPECT_GT(imported, 1500u);
  EXPECT_GT(evaluated, 1000u);
}

}  // namespace
}  // namespace cleave
