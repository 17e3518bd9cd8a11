#include "bridge/tile_leir.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/codes.hpp"
#include "base/match.hpp"

namespace cleave::bridge {

using leir::ExprId;
using leir::NameId;
using sym::Expr;
using tile::Buffer;
using tile::BufferId;
using tile::Place;

namespace {

constexpr std::string_view kVariables = "ACDEFGHIJKMNOQRSWXYZ", kTails = "acdefghijkmnoqrswxyz",
                           kIndices = "acdfghijklmnopqrsuw";

// The nth word: the letters, then words of two letters, then of three.
std::string word(size_t n, std::string_view first, std::string_view rest) {
  size_t words = first.size(), tail = 0;
  for (; n >= words; words *= rest.size(), ++tail) n -= words;
  std::string out;
  for (; tail > 0; --tail, n /= rest.size()) out.insert(out.begin(), rest[n % rest.size()]);
  return first[n] + out;
}

struct Refuse {
  std::string why;  // ends the conversion; caught in to_leir()
};

class Converter {
 public:
  Converter(const tile::Program& p, bool parallel) : p_(p), pool_(*p.syms), parallel_(parallel) {}

  TileAsLeir run() {
    if (!p_.dims.empty())
      throw Refuse{fmt::format("the dimension `{}` is open: give it a value", pool_.symbol_name(p_.dims[0]))};
    declare();
    for (const bool once : {true, false})
      for (const tile::Kernel& k : p_.kernels)
        if (k.once == once) top(k.body);
    if (s().items.empty()) throw Refuse{"it computes nothing"};
    return std::move(out_);
  }

 private:
  leir::Syntax& s() { return out_.syntax; }

  void declare() {
    static const std::pair<Place, leir::Role> kArguments[] = {{Place::input, leir::Role::input},
                                                              {Place::constant, leir::Role::constant},
                                                              {Place::scalar, leir::Role::input},
                                                              {Place::output, leir::Role::output}};
    names_.resize(p_.buffers.size());
    // Arguments that are named as LEIR may name variables keep their names.
    const auto keeps = [](const Buffer& b) { return !b.alias_of.valid() && !leir::refuse_variable(b.name); };
    for (const auto& [place, role] : kArguments)
      for (BufferId id : p_.buffers_in(place))
        if (keeps(p_.buffer(id))) taken_.insert(p_.buffer(id).name);
    auto name = [&](uint32_t i, bool argument) {
      const Buffer& b = p_.buffers[BufferId(i)];
      const std::string own = argument && keeps(b) ? b.name : fresh();
      names_[i] = s().intern(own);
      out_.comments += fmt::format("# {}: {} {}{}\n", own, tile::name(b.place), b.name,
                                   b.panel ? fmt::format(", in panels of {} columns", b.panel) : "");
      return own;
    };
    for (const auto& [place, role] : kArguments) {
      std::vector<BufferId> list = p_.buffers_in(place);
      std::sort(list.begin(), list.end(),
                [&](BufferId a, BufferId b) { return p_.buffer(a).argument < p_.buffer(b).argument; });
      for (BufferId id : list) {
        const Buffer& b = p_.buffer(id);
        if (b.alias_of.valid()) continue;
        out_.names[b.name] = name(id.index, true);
        leir::HeaderEntry h;
        h.role = role;
        h.name = names_[id.index];
        h.type = leir::from_dtype(b.dtype);
        for (Expr e : b.shape) h.dims.push_back({extent(e), leir::kNone});
        s().header.push_back(std::move(h));
      }
    }
    for (uint32_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& b = p_.buffers[BufferId(i)];
      const bool argument =
          std::any_of(std::begin(kArguments), std::end(kArguments), [&](const auto& a) { return a.first == b.place; });
      if (!b.alias_of.valid() && !argument) name(i, false);
    }
  }
  // The next name that no argument has.
  std::string fresh() {
    std::string own;
    do {
      own = word(words_++, kVariables, kTails);
    } while (taken_.contains(own));
    return own;
  }
  int64_t extent(Expr e) const {
    const auto n = pool_.as_constant(e);
    if (!n) throw Refuse{"an extent of a buffer is open"};
    return *n;
  }

  // -- integers -----------------------------------------------------------------------------------------------------

  ExprId number(int64_t v) { return s().integer(v); }

  ExprId integer(Expr e) { return printed(pool_.substitute(e, values_)); }
  ExprId printed(Expr e) {
    if (pool_.kind(e) != sym::Kind::polynomial && pool_.kind(e) != sym::Kind::constant) return atom(e);
    std::vector<sym::Pool::Term> terms = pool_.terms(e);
    // What is positive first, the number last.
    std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.atoms.empty(), a.coefficient < 0, a.atoms) <
             std::tuple(b.atoms.empty(), b.coefficient < 0, b.atoms);
    });
    std::optional<ExprId> sum;
    for (const auto& t : terms) {
      std::optional<ExprId> product;
      for (Expr a : t.atoms) {
        const ExprId x = atom(a);
        product = product ? s().binary(leir::Op::mul, *product, x) : x;
      }
      const int64_t size = std::abs(t.coefficient);
      if (!product) {
        product = number(size);
      } else if (size != 1) {
        const ExprId n = number(size);
        product = s().binary(leir::Op::mul, *product, n);
      }
      if (sum)
        sum = s().binary(t.coefficient < 0 ? leir::Op::sub : leir::Op::add, *sum, *product);
      else
        sum = t.coefficient < 0 ? s().unary(*product) : *product;
    }
    return sum ? *sum : number(0);
  }
  ExprId atom(Expr e) {
    const auto two = [&](auto make) {
      const auto [a, b] = pool_.operands(e);
      const ExprId x = printed(a), y = printed(b);
      return make(x, y);
    };
    const auto call = [&](leir::Function f) {
      return two([&](ExprId x, ExprId y) {
        const ExprId arguments[] = {x, y};
        return s().call(f, arguments);
      });
    };
    switch (pool_.kind(e)) {
      case sym::Kind::symbol: break;
      case sym::Kind::floordiv: return two([&](ExprId x, ExprId y) { return s().binary(leir::Op::floordiv, x, y); });
      case sym::Kind::mod: return two([&](ExprId x, ExprId y) { return s().binary(leir::Op::mod, x, y); });
      case sym::Kind::min: return call(leir::Function::min);
      case sym::Kind::max: return call(leir::Function::max);
      case sym::Kind::constant:
      case sym::Kind::polynomial: return printed(e);
    }
    if (const auto it = lets_.find(e); it != lets_.end()) return bounded(*it->second);
    const auto it = indices_.find(e);
    CHECK(it != indices_.end(), "`{}` is no index", pool_.symbol_name(e));
    return s().index(it->second);
  }
  // min(max(T, lo), hi - or lo when that is below it): the value of a Let.
  ExprId bounded(const tile::Let& l) {
    const ExprId low = integer(l.lo), high = integer(l.hi), value = element(l.buffer, l.at);
    const ExprId least[] = {high, value};
    const ExprId most[] = {low, s().call(leir::Function::min, least)};
    return s().call(leir::Function::max, most);
  }

  // -- elements -----------------------------------------------------------------------------------------------------

  BufferId base(BufferId id) const {
    while (p_.buffer(id).alias_of.valid()) id = p_.buffer(id).alias_of;
    return id;
  }
  leir::Scope scope(const Buffer& b) const {
    return b.place != Place::scratch ? leir::Scope::global : b.shape.empty() ? leir::Scope::local : leir::Scope::shared;
  }
  ExprId variable(BufferId id, std::span<const ExprId> at) {
    const Buffer& b = p_.buffer(id);
    return s().tensor(names_[id.index], leir::from_dtype(b.dtype), scope(b), at);
  }
  ExprId element(BufferId id, std::span<const Expr> at) {
    const BufferId owner = base(id);
    std::vector<ExprId> subscripts;
    if (owner == id) {
      for (Expr e : at) subscripts.push_back(integer(e));
      return variable(id, subscripts);
    }
    // The memory of another shape: along the memory, and back to the owner's axes.
    Expr flat = pool_.constant(0);
    for (size_t a = 0; a < at.size(); ++a) flat = pool_.add(pool_.mul(flat, p_.buffer(id).shape[a]), at[a]);
    Expr stride = pool_.constant(1);
    const auto& shape = p_.buffer(owner).shape;
    std::vector<Expr> own;
    for (size_t a = shape.size(); a-- > 0; stride = pool_.mul(stride, shape[a])) {
      const Expr q = pool_.floordiv(pool_.substitute(flat, values_), stride);
      own.push_back(a == 0 ? q : pool_.mod(q, shape[a]));
    }
    std::reverse(own.begin(), own.end());
    for (Expr e : own) subscripts.push_back(printed(e));
    return variable(owner, subscripts);
  }

  // -- statements ---------------------------------------------------------------------------------------------------

  // A loop whose iteration `symbol` stands for low + step * index.
  struct Open {
    leir::Loop loop;
    Expr symbol, index;
  };
  Open open(Expr symbol, Expr low, Expr high, int64_t step, leir::Kind kind) {
    Open o;
    const Expr count = pool_.ceildiv(pool_.sub(high, low), pool_.constant(step));
    o.symbol = symbol;
    const Expr trips = pool_.substitute(count, values_);
    const sym::Interval n = pool_.bounds(trips);
    o.loop.kind = kind;
    o.loop.extent = printed(trips);
    std::string name = word(next_index_++, kIndices, kIndices);
    while (leir::refuse_index(name)) name = word(next_index_++, kIndices, kIndices);
    o.loop.index = s().intern(name);
    o.index = pool_.fresh("leir", {0, std::max<int64_t>(n.hi - 1, 0)});
    indices_[o.index] = o.loop.index;
    values_[symbol] = pool_.add(pool_.substitute(low, values_), pool_.mul(o.index, step));
    return o;
  }
  void close(const Open& o) { values_.erase(o.symbol); }

  // Loops that never run are left out, with what is in them: LEIR has no extent 0.
  bool never(Expr low, Expr high) const {
    const auto n = pool_.as_constant(pool_.sub(high, low));
    return n && *n <= 0;
  }
  bool never(const std::vector<const tile::Axis*>& axes) const {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const tile::Axis* a) { return never(pool_.constant(0), a->extent); });
  }
  bool nothing(const std::vector<tile::Statement>& body) const {
    return std::all_of(body.begin(), body.end(), [&](const tile::Statement& st) { return nothing(st); });
  }
  bool nothing(const tile::Statement& st) const {
    return match(
        st.what, [&](const tile::For& f) { return never(f.lo, f.hi) || nothing(f.body); },
        [&](const tile::Let& l) { return nothing(l.body); },
        [&](const tile::Matmul& m) {
          const Expr zero = pool_.constant(0);
          return never(zero, m.m) || never(zero, m.n) || (m.init == tile::Matmul::Init::load && never(zero, m.k));
        },
        [&](const tile::Nest& n) {
          for (const tile::Write& w : n.stores)
            if (w.fresh && !never(reached(n, w))) return false;
          return n.stores.empty() || never(all(n));
        });
  }
  static std::vector<const tile::Axis*> all(const tile::Nest& n) {
    std::vector<const tile::Axis*> out;
    for (const tile::Axis& a : n.axes) out.push_back(&a);
    return out;
  }
  // The axes that a store's place depends on: those that its first value is written over.
  std::vector<const tile::Axis*> reached(const tile::Nest& n, const tile::Write& w) const {
    std::vector<const tile::Axis*> out = all(n);
    std::erase_if(out, [&](const tile::Axis* a) {
      return std::none_of(w.at.begin(), w.at.end(), [&](Expr e) { return pool_.mentions(e, a->symbol); });
    });
    return out;
  }

  // Loops of top-level statements: a nest has at least one.
  void top(const std::vector<tile::Statement>& body) {
    for (const tile::Statement& st : body) {
      if (nothing(st)) continue;
      next_index_ = 0;
      const bool looped = match(
          st.what, [](const tile::For&) { return true; }, [](const tile::Matmul&) { return false; },
          [](const tile::Nest& n) {
            return !n.axes.empty() &&
                   std::none_of(n.stores.begin(), n.stores.end(), [](const tile::Write& w) { return w.fresh; });
          },
          [](const tile::Let&) { return false; });
      if (looped) {
        statement(st);
        continue;
      }
      // What becomes several items, or an equation, stands in a loop of one iteration.
      leir::Loop once;
      once.kind = leir::Kind::serial;
      once.extent = number(1);
      once.index = s().intern(word(next_index_++, kIndices, kIndices));
      const uint32_t nest = s().begin_nest({&once, 1});
      statement(st);
      s().end_nest(nest);
    }
  }

  void statement(const tile::Statement& st) {
    if (nothing(st)) return;
    const size_t indices = next_index_;
    match(
        st.what, [&](const tile::For& f) { loop(f); }, [&](const tile::Nest& n) { nest(n); },
        [&](const tile::Matmul& m) { matmul(m); },
        [&](const tile::Let& l) {
          const Expr value = pool_.fresh("let", let_range(l));
          // Tables of lengths are not written by the program, so the value may be read again.
          lets_[value] = &l;
          values_[l.symbol] = value;
          for (const tile::Statement& inner : l.body) statement(inner);
          values_.erase(l.symbol);
        });
    next_index_ = indices;
  }
  sym::Interval let_range(const tile::Let& l) const {
    const auto low = pool_.bounds(l.lo), high = pool_.bounds(l.hi);
    return {low.lo, std::max(low.hi, high.hi)};
  }

  void loop(const tile::For& f) {
    std::vector<const tile::For*> chain = {&f};
    while (chain.back()->body.size() == 1)
      if (const auto* inner = std::get_if<tile::For>(&chain.back()->body[0].what))
        chain.push_back(inner);
      else
        break;
    std::vector<Open> opened;
    std::vector<leir::Loop> loops;
    for (const tile::For* each : chain) {
      opened.push_back(open(each->symbol, each->lo, each->hi, each->step,
                            each->parallel && parallel_ ? leir::Kind::parallel : leir::Kind::serial));
      loops.push_back(opened.back().loop);
    }
    const uint32_t nest = s().begin_nest(loops);
    const std::vector<tile::Statement>& body = chain.back()->body;
    for (const tile::Statement& inner : body) statement(inner);
    s().end_nest(nest);
    for (const Open& o : opened) close(o);
  }

  template <class Body>
  void over(const std::vector<const tile::Axis*>& axes, const Body& body) {
    if (never(axes)) return;
    const size_t indices = next_index_;
    std::vector<Open> opened;
    std::vector<leir::Loop> loops;
    for (const tile::Axis* a : axes) {
      opened.push_back(open(a->symbol, pool_.constant(0), a->extent, 1, leir::Kind::serial));
      loops.push_back(opened.back().loop);
    }
    std::optional<uint32_t> nest;
    if (!loops.empty()) nest = s().begin_nest(loops);
    body();
    if (nest) s().end_nest(*nest);
    for (const Open& o : opened) close(o);
    next_index_ = indices;
  }

  void nest(const tile::Nest& n) {
    for (const tile::Write& w : n.stores) {
      if (!w.fresh) continue;
      over(reached(n, w), [&] {
        const ExprId target = element(w.buffer, w.at), value = identity(w);
        s().equation(target, value);
      });
    }
    over(all(n), [&] { point(n); });
  }

  ExprId identity(const tile::Write& w) {
    const DType d = compute_type(p_.buffer(w.buffer).dtype);
    const bool real = is_real(d);
    switch (*w.accumulate) {
      case Fn::add:
      case Fn::logical_or: return number(0);
      case Fn::mul:
      case Fn::logical_and: return number(1);
      case Fn::max:
        if (real) return s().unary(s().infinity());
        return whole(leir::lowest_integer(leir::from_dtype(d)));
      case Fn::min:
        if (real) return s().infinity();
        return whole(leir::highest_integer(leir::from_dtype(d)));
      default: throw Refuse{fmt::format("`{}` does not accumulate", info(*w.accumulate).name)};
    }
  }
  // Any integer: the least one has no literal.
  ExprId whole(int64_t v) {
    if (v != std::numeric_limits<int64_t>::min()) return number(v);
    const ExprId low = number(v + 1), one = number(1);
    return s().binary(leir::Op::sub, low, one);
  }

  // All values of a point, then its stores.
  void point(const tile::Nest& n) {
    nodes_ = n.nodes;
    kept_.assign(n.nodes.size(), std::nullopt);
    std::vector<size_t> uses(n.nodes.size(), 0);
    for (const tile::Node& node : n.nodes) for_operands(node, [&](tile::NodeId o) { ++uses[o.index]; });
    for (const tile::Write& w : n.stores) ++uses[w.value.index];
    for (uint32_t i = 0; i < n.nodes.size(); ++i)
      if (uses[i] > 0 && needs_variable(n.nodes[i], uses[i])) keep(i);
    // A store must not change what a later store's value reads.
    for (size_t k = 1; k < n.stores.size(); ++k)
      for (size_t j = 0; j < k; ++j)
        if (!kept_[n.stores[k].value.index] && reads(n.stores[k].value, base(n.stores[j].buffer)))
          keep(n.stores[k].value.index);
    for (const tile::Write& w : n.stores) {
      const ExprId target = element(w.buffer, w.at);
      if (!w.accumulate) {
        s().equation(target, value(w.value));
        continue;
      }
      const ExprId old = element(w.buffer, w.at), x = value(w.value);
      s().equation(target, combined(*w.accumulate, old, x));
    }
  }
  ExprId combined(Fn fn, ExprId a, ExprId b) {
    const ExprId both[] = {a, b};
    switch (fn) {
      case Fn::add: return s().binary(leir::Op::add, a, b);
      case Fn::mul: return s().binary(leir::Op::mul, a, b);
      case Fn::max: return s().call(leir::Function::max, both);
      case Fn::min: return s().call(leir::Function::min, both);
      case Fn::logical_and: return s().binary(leir::Op::logical_and, a, b);
      case Fn::logical_or: return s().binary(leir::Op::logical_or, a, b);
      default: throw Refuse{fmt::format("`{}` does not accumulate", info(fn).name)};
    }
  }

  // -- expressions --------------------------------------------------------------------------------------------------

  template <class F>
  static void for_operands(const tile::Node& n, const F& f) {
    match(
        n.what,
        [&](const tile::Load& l) {
          for (const tile::Index& i : l.at)
            if (i.dynamic.valid()) f(i.dynamic);
          if (l.guard.valid()) f(l.guard);
        },
        [&](const tile::Literal&) {}, [&](const tile::IndexValue&) {},
        [&](const tile::Apply& a) {
          for (tile::NodeId o : a.operands) f(o);
        },
        [&](const tile::Cast& c) { f(c.operand); });
  }
  bool reads(tile::NodeId root, BufferId buffer) const {
    std::vector<tile::NodeId> work = {root};
    while (!work.empty()) {
      const tile::NodeId n = work.back();
      work.pop_back();
      if (kept_[n.index]) continue;
      if (const auto* l = std::get_if<tile::Load>(&nodes_[n.index].what); l && base(l->buffer) == buffer) return true;
      for_operands(nodes_[n.index], [&](tile::NodeId o) { work.push_back(o); });
    }
    return false;
  }
  bool literal(tile::NodeId n) const { return std::holds_alternative<tile::Literal>(nodes_[n.index].what); }

  // A variable of the node's own type: for rounding casts, for narrow integers, which wrap at each operation, for
  // branches that are both numbers, for quotients that are rounded down, and for what is used again.
  bool needs_variable(const tile::Node& n, size_t uses) const {
    if (std::holds_alternative<tile::Cast>(n.what)) return true;
    const auto* a = std::get_if<tile::Apply>(&n.what);
    if (!a) return false;
    const bool narrow = is_integer(n.dtype) && n.dtype != DType::i64;
    const bool numbers =
        std::all_of(a->operands.begin(), a->operands.end(), [&](tile::NodeId o) { return literal(o); });
    const bool branches = a->fn == Fn::where && literal(a->operands[1]) && literal(a->operands[2]);
    const bool floored = a->fn == Fn::floordiv && is_real(n.dtype);
    return narrow || numbers || branches || floored || uses > 1;
  }
  void keep(uint32_t i) {
    const ExprId x = bare(i);
    const leir::Type type = leir::from_dtype(nodes_[i].dtype);
    const NameId name = s().intern(fresh());
    s().equation(s().tensor(name, type, leir::Scope::local, {}), x);
    kept_[i] = {name, type};
  }
  ExprId value(tile::NodeId n) {
    if (const auto& k = kept_[n.index]) return s().tensor(k->first, k->second, leir::Scope::local, {});
    return bare(n.index);
  }
  ExprId real(double v) {
    if (std::isnan(v)) {
      const ExprId a = s().infinity(), b = s().infinity();
      return s().binary(leir::Op::sub, a, b);
    }
    if (std::isinf(v)) return v > 0 ? s().infinity() : s().unary(s().infinity());
    return s().real(v);
  }
  ExprId bare(uint32_t i) {
    const tile::Node& n = nodes_[i];
    return match(
        n.what, [&](const tile::Load& l) { return load(l); },
        [&](const tile::Literal& l) {
          return is_real(n.dtype) ? real(round_to(n.dtype, l.value)) : whole(real_to_integer(n.dtype, l.value));
        },
        [&](const tile::IndexValue& v) { return integer(v.value); }, [&](const tile::Apply& a) { return apply(n, a); },
        [&](const tile::Cast& c) {
          const ExprId x = value(c.operand);
          if (n.dtype != DType::boolean) return x;
          const ExprId zero = number(0);
          const ExprId two[] = {x, zero};
          const leir::Comparison by[] = {leir::Comparison::ne};
          return s().compare(two, by);
        });
  }
  ExprId load(const tile::Load& l) {
    std::optional<ExprId> guard;
    if (l.guard.valid()) guard = value(l.guard);
    const bool dynamic = std::any_of(l.at.begin(), l.at.end(), [](const tile::Index& i) { return i.dynamic.valid(); });
    ExprId x;
    if (dynamic) {
      if (base(l.buffer) != l.buffer) throw Refuse{"a computed place in memory of another shape"};
      std::vector<ExprId> at;
      for (const tile::Index& i : l.at) {
        const ExprId affine = integer(i.affine);
        if (!i.dynamic.valid()) {
          at.push_back(affine);
          continue;
        }
        const ExprId computed = value(i.dynamic);
        at.push_back(pool_.is(i.affine, 0) ? computed : s().binary(leir::Op::add, affine, computed));
      }
      x = variable(l.buffer, at);
    } else {
      std::vector<Expr> at;
      for (const tile::Index& i : l.at) at.push_back(i.affine);
      x = element(l.buffer, at);
    }
    if (!guard) return x;
    const ExprId zero = number(0);
    const ExprId three[] = {*guard, x, zero};
    return s().call(leir::Function::if_then_else, three);
  }
  ExprId compared(ExprId p, leir::Comparison by, ExprId q) {
    const ExprId two[] = {p, q};
    const leir::Comparison signs[] = {by};
    return s().compare(two, signs);
  }
  ExprId chosen(ExprId condition, ExprId p, ExprId q) {
    const ExprId three[] = {condition, p, q};
    return s().call(leir::Function::if_then_else, three);
  }
  ExprId apply(const tile::Node& n, const tile::Apply& a) {
    std::vector<ExprId> x;
    for (tile::NodeId o : a.operands) x.push_back(value(o));
    // 0 where the divisor is 0.
    const auto safe = [&](leir::Op op) {
      const ExprId zero = number(0), divisor = value(a.operands[1]), nothing = number(0);
      return chosen(compared(divisor, leir::Comparison::eq, zero), nothing, s().binary(op, x[0], x[1]));
    };
    const bool reals = is_real(nodes_[a.operands.back().index].dtype);
    switch (a.fn) {
      case Fn::add: return s().binary(leir::Op::add, x[0], x[1]);
      case Fn::sub: return s().binary(leir::Op::sub, x[0], x[1]);
      case Fn::mul: return s().binary(leir::Op::mul, x[0], x[1]);
      case Fn::div:
        if (!reals) return truncated(a);
        return s().binary(leir::Op::div, x[0], x[1]);
      case Fn::quot0: return safe(leir::Op::div);
      case Fn::floordiv:
      case Fn::mod:
        if (reals && a.fn == Fn::mod) throw Refuse{"`mod` of reals"};
        if (reals) return floored(x[0], x[1]);
        return safe(a.fn == Fn::mod ? leir::Op::mod : leir::Op::floordiv);
      case Fn::pow:
        // A number as exponent would be taken by squaring.
        if (literal(a.operands[1])) x[1] = stored(a.operands[1]);
        return s().binary(leir::Op::power, x[0], x[1]);
      case Fn::neg: return s().unary(x[0]);
      case Fn::eq: return compared(x[0], leir::Comparison::eq, x[1]);
      case Fn::ne:
      case Fn::logical_xor: return compared(x[0], leir::Comparison::ne, x[1]);
      case Fn::lt: return compared(x[0], leir::Comparison::lt, x[1]);
      case Fn::le: return compared(x[0], leir::Comparison::le, x[1]);
      case Fn::gt: return compared(x[0], leir::Comparison::gt, x[1]);
      case Fn::ge: return compared(x[0], leir::Comparison::ge, x[1]);
      case Fn::logical_and: return s().binary(leir::Op::logical_and, x[0], x[1]);
      case Fn::logical_or: return s().binary(leir::Op::logical_or, x[0], x[1]);
      case Fn::logical_not: {
        const ExprId zero = number(0);
        return compared(x[0], leir::Comparison::eq, zero);
      }
      case Fn::where: return chosen(x[0], x[1], x[2]);
      default: break;
    }
    for (size_t f = 0; f < leir::all_functions().size(); ++f)
      if (std::string_view(leir::all_functions()[f].name) == info(a.fn).name)
        return s().call(static_cast<leir::Function>(f), x);
    throw Refuse{fmt::format("`{}` of {}", info(a.fn).name, name(n.dtype))};
  }
  // The quotient is rounded down before it is rounded to its type: it is taken in f64.
  ExprId floored(ExprId x, ExprId y) {
    const NameId name = s().intern(fresh());
    s().equation(s().tensor(name, leir::Type::f64, leir::Scope::local, {}), x);
    const ExprId wide = s().tensor(name, leir::Type::f64, leir::Scope::local, {});
    const ExprId quotient[] = {s().binary(leir::Op::div, wide, y)};
    return s().call(leir::Function::floor, quotient);
  }
  // Integers towards zero: the quotient that is rounded down, and one more where that is not the same.
  ExprId truncated(const tile::Apply& a) {
    for (tile::NodeId n : a.operands) keep(n.index);
    const auto x = [&] { return value(a.operands[0]); };
    const auto y = [&] { return value(a.operands[1]); };
    const auto negative = [&](ExprId p) { return compared(p, leir::Comparison::lt, number(0)); };
    const ExprId rest = compared(s().binary(leir::Op::mod, x(), y()), leir::Comparison::ne, number(0));
    const ExprId apart = compared(negative(x()), leir::Comparison::ne, negative(y()));
    const ExprId more = chosen(s().binary(leir::Op::logical_and, rest, apart), number(1), number(0));
    const ExprId quotient = s().binary(leir::Op::add, s().binary(leir::Op::floordiv, x(), y()), more);
    return chosen(compared(y(), leir::Comparison::eq, number(0)), number(0), quotient);
  }
  ExprId stored(tile::NodeId n) {
    keep(n.index);
    return value(n);
  }

  // -- products -----------------------------------------------------------------------------------------------------

  ExprId tile_element(const tile::TileRef& t, Expr row, Expr column) {
    std::vector<Expr> at = t.at;
    auto& r = at[static_cast<size_t>(t.rows)];
    r = pool_.add(r, row);
    auto& c = at[static_cast<size_t>(t.columns)];
    c = pool_.add(c, column);
    return element(t.buffer, at);
  }
  void matmul(const tile::Matmul& m) {
    const bool wide = p_.buffer(m.a.buffer).dtype == DType::f64 || p_.buffer(m.b.buffer).dtype == DType::f64;
    const leir::Type sum = wide ? leir::Type::f64 : leir::Type::f32;
    const tile::Axis rows{pool_.fresh("row"), m.m}, columns{pool_.fresh("column"), m.n},
        depth{pool_.fresh("depth"), m.k};
    // The sum is kept in its own type until it is stored.
    const bool own = leir::from_dtype(p_.buffer(m.c.buffer).dtype) == sum;
    over({&rows, &columns}, [&] {
      const Expr i = rows.symbol, j = columns.symbol, k = depth.symbol;
      const NameId name = own ? leir::kNone : s().intern(fresh());
      const auto target = [&] { return own ? tile_element(m.c, i, j) : s().tensor(name, sum, leir::Scope::local, {}); };
      if (m.init == tile::Matmul::Init::zero) {
        const ExprId t = target();
        s().equation(t, number(0));
      } else if (m.init == tile::Matmul::Init::scaled) {
        std::vector<Expr> at = m.scale_at;
        at.back() = pool_.add(at.back(), i);
        const ExprId t = target(), old = tile_element(m.c, i, j), scale = element(m.scale, at);
        s().equation(t, s().binary(leir::Op::mul, old, scale));
      } else if (!own) {
        const ExprId t = target();
        s().equation(t, tile_element(m.c, i, j));
      }
      over({&depth}, [&] {
        const ExprId t = target(), a = tile_element(m.a, i, k), b = tile_element(m.b, k, j), old = target();
        const ExprId three[] = {a, b, old};
        s().equation(t, s().call(leir::Function::fma, three));
      });
      if (!own) {
        const ExprId t = tile_element(m.c, i, j);
        s().equation(t, target());
      }
    });
  }

  const tile::Program& p_;
  sym::Pool& pool_;
  bool parallel_;
  TileAsLeir out_;
  std::vector<NameId> names_;                 // of buffers that own memory
  std::unordered_map<Expr, Expr> values_;     // loop symbols over the indices
  std::unordered_map<Expr, NameId> indices_;  // symbols of indices
  std::unordered_map<Expr, const tile::Let*> lets_;
  std::set<std::string> taken_;  // by arguments
  size_t next_index_ = 0, words_ = 0;
  std::vector<tile::Node> nodes_;  // of the nest at hand
  std::vector<std::optional<std::pair<NameId, leir::Type>>> kept_;
};

}  // namespace

Result<TileAsLeir> to_leir(const tile::Program& program) {
  Diagnostics why;
  for (const bool parallel : {true, false}) {
    try {
      TileAsLeir out = Converter(program, parallel).run();
      leir::Checked checked = leir::check(out.syntax);
      if (checked.program) return out;
      why = std::move(checked.messages);
    } catch (const Refuse& r) {
      return diagnose(Code::leir_unsupported, "LEIR", fmt::format("of `{}`: {}", program.name, r.why));
    }
  }
  std::erase_if(why, [](const Diagnostic& d) { return info(d.code).severity != Severity::error; });
  CHECK(!why.empty(), "a program that is refused without an error");
  return diagnose(Code::leir_unsupported, "LEIR",
                  fmt::format("of `{}`: its checker does not prove it right ({})", program.name, why[0].message()));
}

}  // namespace cleave::bridge
