#include "tune/problem.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/codes.hpp"
#include "base/rng.hpp"
#include "graph/spec.hpp"

namespace cleave::tune {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

// What the integers of a leaf mean, and how large its reals are.
struct Meaning {
  enum class Kind { plain, position, pointers, lengths } kind = Kind::plain;
  int64_t limit = 4;  // positions: below this; pointers: the total; lengths: the most
  int64_t most = 0;   // pointers: the longest row
  double deviation = 1;
};

// Inputs that are the weights of a layer, by the number of terms of its sums: matrices that multiply computed values.
std::map<ValueId, int64_t> weights(const Graph& g) {
  std::map<ValueId, ValueId> leaf_of;  // through casts and views
  std::map<ValueId, int64_t> out;
  for (NodeId id : g.node_ids()) {
    const Node& n = g.node(id);
    const graph::Category category = graph::info(n.op).category;
    if (category == graph::Category::leaf) {
      leaf_of[n.results[0]] = n.results[0];
    } else if (category == graph::Category::cast || category == graph::Category::view) {
      if (const auto it = leaf_of.find(n.operands[0]); n.operands.size() == 1 && it != leaf_of.end())
        for (ValueId r : n.results) leaf_of[r] = it->second;
    } else if (n.op == Op::contract && n.operands.size() == 2) {
      for (size_t i = 0; i < 2; ++i) {
        const auto it = leaf_of.find(n.operands[i]);
        if (it == leaf_of.end() || leaf_of.count(n.operands[1 - i])) continue;
        const ValueId leaf = it->second;
        if (g.producer(leaf).op != Op::input || !is_real(g.type(leaf).dtype) || g.type(leaf).shape.size() != 2)
          continue;
        const graph::ContractSpec spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
        const graph::IndexNames &own = spec.operands[i], summed = spec.reduced();
        int64_t terms = 1;
        for (size_t a = 0; a < own.size(); ++a)
          if (std::find(summed.begin(), summed.end(), own[a]) != summed.end()) terms *= g.extents(n.operands[i]).at(a);
        out[leaf] = std::max(out[leaf], terms);
      }
    }
  }
  return out;
}

// Follows each integer leaf through casts and views to the operator that gives it a meaning.
std::map<ValueId, Meaning> meanings(const Graph& g) {
  std::map<ValueId, std::vector<ValueId>> roots;  // value -> integer leaves whose elements it passes on
  std::map<ValueId, Meaning> out;
  const auto extent = [&](ValueId v, size_t axis) { return g.extents(v).at(axis); };
  const auto give = [&](ValueId v, Meaning m) {
    for (ValueId leaf : roots[v]) {
      auto [it, added] = out.try_emplace(leaf, m);
      if (!added) it->second.limit = std::min(it->second.limit, m.limit);
    }
  };
  for (NodeId id : g.node_ids()) {
    const Node& n = g.node(id);
    switch (graph::info(n.op).category) {
      case graph::Category::leaf:
        if (!is_real(g.type(n.results[0]).dtype)) roots[n.results[0]] = {n.results[0]};
        break;
      case graph::Category::cast:
      case graph::Category::view:
        for (ValueId r : n.results)
          for (ValueId v : n.operands) roots[r].insert(roots[r].end(), roots[v].begin(), roots[v].end());
        break;
      case graph::Category::gather: {
        const std::vector<int64_t> axis = {n.attributes.get<int64_t>("axis")};
        const auto first = static_cast<size_t>(graph::normalise_axes(axis, g.extents(n.operands[0]).size())[0]);
        give(n.operands[1], {Meaning::Kind::position, extent(n.operands[0], first)});
      } break;
      case graph::Category::composite: {
        if (n.op != Op::ragged && n.op != Op::ragged_pack && n.op != Op::paged) break;
        const auto known = [&](const char* name) {
          return g.syms().as_constant(n.attributes.get<std::vector<sym::Expr>>(name)[0]).value_or(1);
        };
        if (n.op == Op::ragged) give(n.operands[1], {Meaning::Kind::pointers, extent(n.operands[0], 0), known("max")});
        if (n.op == Op::ragged_pack)
          give(n.operands[1], {Meaning::Kind::pointers, known("rows"), extent(n.operands[0], 1)});
        if (n.op == Op::paged) {
          const int64_t page = std::max<int64_t>(1, n.attributes.get<int64_t>("page"));
          const int64_t pages = extent(n.operands[2], 0);
          const int64_t requests = std::max<int64_t>(1, extent(n.operands[3], 0));
          give(n.operands[1], {Meaning::Kind::pointers, pages, pages});
          give(n.operands[2], {Meaning::Kind::position, extent(n.operands[0], 0) / page});
          give(n.operands[3], {Meaning::Kind::lengths, std::min(known("max"), pages / requests * page)});
        }
        break;
      }
      default: break;
    }
  }
  return out;
}

// Reals repeat from here on: a prime, so that no two rows of a large array are alike. Gigabytes are then filled as fast
// as memory is written.
constexpr int64_t kPeriod = 4194301;

void fill_reals(Array& a, Rng& rng, double deviation) {
  const int64_t n = a.elements(), width = byte_size(a.dtype), first = std::min(n, kPeriod);
  auto* at = a.data.bytes();
  for (int64_t i = 0; i < first; ++i, at += width) store_real(a.dtype, at, round_to(a.dtype, deviation * rng.normal()));
  for (int64_t i = first; i < n; i += kPeriod, at += kPeriod * width)
    std::memcpy(at, a.data.bytes(), static_cast<size_t>(std::min(kPeriod, n - i) * width));
}

void fill(Array& a, Rng& rng, const Meaning& meaning) {
  if (is_real(a.dtype)) return fill_reals(a, rng, meaning.deviation);
  const int64_t n = a.elements();
  auto* at = a.data.bytes();
  const int64_t width = byte_size(a.dtype);
  for (int64_t i = 0; i < n; ++i, at += width) {
    const int64_t limit = std::max<int64_t>(1, meaning.limit);
    int64_t value = 0;
    switch (meaning.kind) {
      case Meaning::Kind::plain: value = static_cast<int64_t>(rng.below(a.dtype == DType::boolean ? 2 : 4)); break;
      case Meaning::Kind::position: value = static_cast<int64_t>(rng.below(static_cast<uint64_t>(limit))); break;
      case Meaning::Kind::lengths: value = rng.between((limit + 1) / 2, limit); break;
      case Meaning::Kind::pointers: {  // even rows, the last one ends at the total unless that makes it too long
        const int64_t rows = std::max<int64_t>(1, n - 1);
        const int64_t length = std::min(meaning.limit / rows, meaning.most);
        value = i == n - 1 && meaning.limit - (n - 2) * length <= meaning.most && n > 1 ? meaning.limit : i * length;
        break;
      }
    }
    store_integer(a.dtype, at, wrap_to(a.dtype, value));
  }
}

}  // namespace

Array make_array(std::string name, DType dtype, std::vector<int64_t> extents) {
  Array a{std::move(name), dtype, std::move(extents), {}};
  a.data = runtime::Buffer(std::max<int64_t>(64, a.bytes()));
  return a;
}

oracle::Tensor tensor_of(const Array& array) {
  return oracle::from_dense(array.dtype, array.extents, array.data.data());
}

int64_t max_data_bytes() {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<int64_t>(std::clamp(memory / 2, 0x1p26, 0x1p35));
}

Result<Data> random_data(const Graph& graph, uint64_t seed) {
  double bytes = 0;
  std::vector<ValueId> all = graph.leaves();
  for (const graph::Output& o : graph.outputs()) all.insert(all.end(), 2, o.value);  // results are held twice
  for (ValueId v : all) {
    double n = 1;
    for (sym::Expr e : graph.type(v).shape) {
      const auto extent = graph.syms().as_constant(e);
      if (!extent) {
        const std::string name = graph.syms().print(graph.syms().symbols_of(e).at(0));
        return diagnose(Code::unbound_dim, name, name);
      }
      n *= static_cast<double>(*extent);
    }
    bytes += n * static_cast<double>(byte_size(graph.type(v).dtype));
  }
  if (bytes > static_cast<double>(max_data_bytes()))
    return diagnose(Code::data_too_large, static_cast<int64_t>(std::min(bytes, 9e18)), max_data_bytes());

  Data out;
  const auto meaning = meanings(graph);
  const auto weight = weights(graph);
  Rng rng(seed);
  for (ValueId v : graph.leaves()) {
    const Node& n = graph.producer(v);
    const auto& name = n.attributes.get<std::string>("name");
    const auto known = meaning.find(v);
    Meaning m = known == meaning.end() ? Meaning{} : known->second;
    if (const auto w = weight.find(v); w != weight.end())
      m.deviation = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, w->second)));
    Array a = make_array(name, graph.type(v).dtype, graph.extents(v));
    if (n.op == Op::constant) {
      const std::vector<std::byte> bytes_of =
          graph::materialise(n.attributes.get<graph::ConstantData>("data"), a.dtype, a.elements());
      if (!bytes_of.empty()) std::memcpy(a.data.data(), bytes_of.data(), bytes_of.size());
      out.constants.push_back(std::move(a));
      continue;
    }
    fill(a, rng, m);
    if (n.op == Op::input)
      out.inputs.push_back(std::move(a));
    else
      out.scalars.push_back(is_real(a.dtype) ? load_real(a.dtype, a.data.data())
                                             : static_cast<double>(load_integer(a.dtype, a.data.data())));
  }
  return out;
}

}  // namespace cleave::tune
