// Builds one Nest: fresh axis symbols, expression nodes, stores.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tile/tile.hpp"

namespace cleave::schedule {

class NestBuilder {
 public:
  explicit NestBuilder(sym::Pool& syms) : syms_(syms) {}

  // An axis of at most `most` points; an axis of one point is no axis: the index 0 is returned.
  sym::Expr axis(std::string_view stem, sym::Expr extent, int64_t most) {
    if (syms_.is(extent, 1)) return syms_.constant(0);
    const sym::Expr s = syms_.fresh(stem, {0, std::max<int64_t>(most - 1, 0)});
    nest_.axes.push_back({s, extent});
    return s;
  }
  tile::NodeId add(tile::Node n) {
    nest_.nodes.push_back(std::move(n));
    return tile::NodeId(static_cast<uint32_t>(nest_.nodes.size() - 1));
  }
  tile::NodeId literal(double value, DType d) { return add({d, tile::Literal{value}}); }
  tile::NodeId load(tile::BufferId b, const std::vector<sym::Expr>& at, DType d) {
    tile::Load l{b, {}, {}};
    for (sym::Expr e : at) l.at.push_back({e, {}});
    return add({d, std::move(l)});
  }
  // 0 where the guard is false.
  tile::NodeId load_if(tile::NodeId guard, tile::BufferId b, const std::vector<sym::Expr>& at, DType d) {
    const tile::NodeId id = load(b, at, d);
    std::get<tile::Load>(nest_.nodes[id.index].what).guard = guard;
    return id;
  }
  tile::NodeId index(sym::Expr e) { return add({DType::i64, tile::IndexValue{e}}); }
  tile::NodeId apply(Fn fn, std::vector<tile::NodeId> x) {
    const DType d = compute_type(nest_.nodes[x[fn == Fn::where ? 1 : 0].index].dtype);
    return add({result_dtype(fn, d), tile::Apply{fn, std::move(x)}});
  }
  tile::NodeId cast(tile::NodeId x, DType d) { return nest_.nodes[x.index].dtype == d ? x : add({d, tile::Cast{x}}); }
  void store(tile::BufferId b, std::vector<sym::Expr> at, tile::NodeId value) {
    nest_.stores.push_back({b, std::move(at), value, std::nullopt, false});
  }
  void accumulate(tile::BufferId b, std::vector<sym::Expr> at, tile::NodeId value, Fn fn, bool fresh) {
    nest_.stores.push_back({b, std::move(at), value, fn, fresh});
  }
  bool has_stores() const { return !nest_.stores.empty(); }
  void make_sequential() { nest_.sequential = true; }
  DType dtype(tile::NodeId id) const { return nest_.nodes[id.index].dtype; }
  tile::Nest take() { return std::move(nest_); }

 private:
  sym::Pool& syms_;
  tile::Nest nest_;
};

}  // namespace cleave::schedule
